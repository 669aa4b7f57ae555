// Package storetest runs a true Redis for tests. It imports nothing of ours.
package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is a redis-server of this machine, without persistence. The end of the
// test ends it.
type Redis struct {
	Address string // host:port
	// Admin is a client of it that does not try again.
	Admin   *redis.Client
	command []string
	process *exec.Cmd
	log     bytes.Buffer
}

// Start starts one with more arguments. The error wraps errors.ErrUnsupported if
// no redis-server is installed.
func Start(t testing.TB, arguments ...string) (*Redis, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("%w: no redis-server here (apt-get install --no-install-recommends redis-server)", errors.ErrUnsupported)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	r := &Redis{Address: net.JoinHostPort("127.0.0.1", port)}
	r.command = append([]string{program, "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", t.TempDir()}, arguments...)
	r.Admin = redis.NewClient(&redis.Options{Addr: r.Address, MaxRetries: -1})
	t.Cleanup(func() {
		r.Kill()
		_ = r.Admin.Close()
	})
	return r, r.Restart(t)
}

// freePort leaves room for the port of a cluster's bus, which is 10,000 above.
func freePort() (string, error) {
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		port := l.Addr().(*net.TCPAddr).Port
		if err := l.Close(); err != nil {
			return "", err
		}
		if port < 50_000 {
			return strconv.Itoa(port), nil
		}
	}
	return "", errors.New("no free port below 50000")
}

// Restart kills it, if it runs, and starts it empty at the same address. It
// returns when the server answers.
func (r *Redis) Restart(t testing.TB) error {
	r.Kill()
	r.process = exec.Command(r.command[0], r.command[1:]...)
	r.process.Stdout, r.process.Stderr, r.process.SysProcAttr = &r.log, &r.log, diesWithUs()
	if err := r.process.Start(); err != nil {
		r.process = nil
		return fmt.Errorf("start redis-server: %w", err)
	}
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = r.Admin.Ping(t.Context()).Err(); err == nil {
			return nil
		}
	}
	r.Kill()
	return fmt.Errorf("redis-server does not answer: %w; it says:\n%s", err, r.log.String())
}

// Kill ends it at once; a second time does nothing.
func (r *Redis) Kill() {
	if r.process != nil {
		_ = r.process.Process.Kill()
		_ = r.process.Wait()
		r.process = nil
	}
}
