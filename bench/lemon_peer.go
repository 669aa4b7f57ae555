package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

//go:embed lemon/main.cpp
var lemonSource []byte

// compileLemon builds the C++ side and returns the path of the program.
func compileLemon(ctx context.Context, dir string) (string, error) {
	source, program := filepath.Join(dir, "main.cpp"), filepath.Join(dir, "lemon")
	if err := os.WriteFile(source, lemonSource, 0o600); err != nil {
		return "", err
	}
	var stderr bytes.Buffer
	compile := exec.CommandContext(ctx, "g++", "-O2", "-DNDEBUG", "-o", program, source)
	compile.Stderr = &stderr
	err := compile.Run()
	switch {
	case err == nil:
		return program, nil
	case errors.Is(err, exec.ErrNotFound) || bytes.Contains(stderr.Bytes(), []byte("lemon/")):
		return "", errors.New("g++ or the LEMON headers are missing; on Debian: apt-get install liblemon-dev g++")
	}
	return "", fmt.Errorf("compile lemon/main.cpp: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
}

// lemonPeer is the running C++ side with one problem loaded.
type lemonPeer struct {
	process *exec.Cmd
	stderr  bytes.Buffer
	ask     io.WriteCloser
	answers *bufio.Reader
}

// lemonAnswer is one line of its output.
type lemonAnswer struct {
	kind         string // number type
	cost         int64
	build, solve time.Duration
}

// startLemon writes the problem to path and starts the program on it.
func startLemon(ctx context.Context, program, path string, p transport) (*lemonPeer, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(p.writeDIMACS(f), f.Close()); err != nil {
		return nil, err
	}
	peer := &lemonPeer{process: exec.CommandContext(ctx, program, path)}
	peer.process.Stderr = &peer.stderr
	if peer.ask, err = peer.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := peer.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	peer.answers = bufio.NewReader(out)
	return peer, peer.process.Start()
}

// solve has the problem built and solved once with 64 and once with 32 bit numbers.
func (l *lemonPeer) solve() (wide, narrow lemonAnswer, err error) {
	if _, err = io.WriteString(l.ask, "\n"); err == nil {
		wide, err = l.read("int64")
	}
	if err == nil {
		narrow, err = l.read("int32")
	}
	if err != nil { // what it has to say is complete only when it has ended
		err = fmt.Errorf("ask LEMON: %w", errors.Join(err, l.stop()))
	}
	return wide, narrow, err
}

func (l *lemonPeer) read(kind string) (a lemonAnswer, err error) {
	line, err := l.answers.ReadString('\n')
	if err != nil {
		return a, err
	}
	if _, err := fmt.Sscan(line, &a.kind, &a.cost, &a.build, &a.solve); err != nil || a.kind != kind {
		return a, fmt.Errorf("answer %q, want %s, cost and two times", line, kind)
	}
	return a, nil
}

// stop ends the program and returns what it complained of.
func (l *lemonPeer) stop() error {
	l.ask.Close()
	if err := l.process.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(l.stderr.Bytes()))
	}
	return nil
}
