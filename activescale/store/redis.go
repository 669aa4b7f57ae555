package store

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// RedisOptions say where the samples of several replicas meet: Redis 5 or
// later, or what speaks its protocol (Valkey).
type RedisOptions struct {
	// Address is host:port; several with commas between are nodes of a cluster
	// to ask for the others.
	Address string
	// Cluster says that a single address is one of a cluster, too.
	Cluster bool
	// Username and Password are what the server asks for, if it does.
	Username, Password string
	// TLS encrypts the connections unless it is nil.
	TLS *tls.Config
	// Prefix begins every key; default "activescale:". Installations that share
	// a Redis need different ones.
	Prefix string
	// TTL is how long a sample is fresh: four flushes, by convention.
	TTL time.Duration
	// Timeout bounds every operation, with connecting; default 500 ms. A slower
	// Redis is an error.
	Timeout time.Duration
	// Dial opens connections in place of TCP and TLS, if not nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Measures count what it does, if not nil.
	Measures *Measures
}

// Redis keeps one key a pod, which expires by the server's clock: that clock
// alone, and no sender's, decides what is fresh. Sample.Age is what has passed
// of a key's time to live. Opening the store does not connect; a server that is
// down is an error of each operation. No operation is tried twice.
type Redis struct {
	RedisOptions
	client redis.UniversalClient
	m      *Measures
	last   atomic.Uint64 // largest epoch that was seen anywhere
}

var _ Store = (*Redis)(nil)

// NewRedis refuses options that cannot work; it does not connect.
func NewRedis(o RedisOptions) (*Redis, error) {
	if o.Prefix == "" {
		o.Prefix = "activescale:"
	}
	if o.Timeout == 0 {
		o.Timeout = 500 * time.Millisecond
	}
	var faults []error
	if o.TTL < time.Millisecond {
		faults = append(faults, fmt.Errorf("time to live of %v is shorter than a millisecond", o.TTL))
	}
	if o.Timeout < 0 {
		faults = append(faults, fmt.Errorf("timeout %v is negative", o.Timeout))
	}
	addresses := strings.Split(o.Address, ",")
	for i, a := range addresses {
		addresses[i] = strings.TrimSpace(a)
		if _, _, err := net.SplitHostPort(addresses[i]); err != nil {
			faults = append(faults, fmt.Errorf("address %q: %w", a, err))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	r := &Redis{RedisOptions: o, m: o.Measures}
	if r.m == nil {
		r.m = NewMeasures(nil)
	}
	r.client = redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: addresses, IsClusterMode: o.Cluster,
		Username: o.Username, Password: o.Password, TLSConfig: o.TLS, Dialer: o.Dial,
		DialTimeout: o.Timeout, ReadTimeout: o.Timeout, WriteTimeout: o.Timeout, PoolTimeout: o.Timeout,
		ContextTimeoutEnabled: true,
		MaxRetries:            -1, DialerRetries: 1,
		// Nothing but our own round trips, also to servers that know no more.
		DisableIdentity:          true,
		PipelinePoolSize:         -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	r.countExchanges()
	return r, nil
}

func (r *Redis) Close() error { return r.client.Close() }

func (r *Redis) key(pod Pod) string { return r.Prefix + "pod:" + pod.String() }

// openScript counts, but never at or below what the caller has seen.
var openScript = redis.NewScript(`
local last = tonumber(redis.call('GET', KEYS[1]) or 0) or 0
if not (last < 2^52) then last = 0 end
local next = string.format('%.0f', math.max(last, tonumber(ARGV[1])) + 1)
redis.call('SET', KEYS[1], next)
return next`)

// Open adds one to a counter in Redis. A counter that was lost, because Redis
// started anew or evicted it, must not begin below the streams that are still
// open: it never falls to the largest epoch that this replica has seen, nor to
// the milliseconds since 1970. So epochs look like times, but only their order
// counts, and a clock that is stepped back or ahead does not change it.
func (r *Redis) Open(ctx context.Context) (epoch uint64, err error) {
	defer func(start time.Time) { r.m.done("redis", "open", start, err) }(time.Now())
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	answer, err := openScript.Run(ctx, r.client, []string{r.Prefix + "epoch"}, r.floor()).Text()
	if err == nil {
		epoch, err = strconv.ParseUint(answer, 10, 64)
	}
	if err != nil {
		return 0, fmt.Errorf("open stream in redis: %w", err)
	}
	r.saw(epoch)
	return epoch, nil
}

// floor is what the next epoch must exceed.
func (r *Redis) floor() uint64 {
	return max(r.last.Load(), uint64(max(0, time.Now().UnixMilli())))
}

// provisional numbers a stream without Redis; the next Open lifts the counter
// above it.
func (r *Redis) provisional() uint64 {
	for {
		last := r.last.Load()
		if next := r.floor() + 1; r.last.CompareAndSwap(last, next) {
			return next
		}
	}
}

func (r *Redis) saw(epoch uint64) {
	for last := r.last.Load(); epoch > last; last = r.last.Load() {
		if r.last.CompareAndSwap(last, epoch) {
			return
		}
	}
}

// putScript writes the sample unless the key holds a newer one, whose epoch it
// gives then. What is none of ours, or would never expire, is overwritten.
var putScript = redis.NewScript(`
local old, new, left = redis.pcall('GET', KEYS[1]), ARGV[1], redis.call('PTTL', KEYS[1])
if type(old) == 'string' and #old >= 17 and string.byte(old) == string.byte(new)
	and left > 0 and left <= tonumber(ARGV[3]) then
	for i = 2, 17 do
		local a, b = string.byte(old, i), string.byte(new, i)
		if a > b then return string.sub(old, 2, 9) end
		if a < b then break end
	end
end
redis.call('SET', KEYS[1], new, 'PX', ARGV[2])
return ''`)

func (r *Redis) Put(ctx context.Context, pod Pod, s Sample) (err error) {
	defer func(start time.Time) { r.m.done("redis", "put", start, err) }(time.Now())
	if err := s.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	newer, err := putScript.Run(ctx, r.client, []string{r.key(pod)},
		encode(s), r.TTL.Milliseconds(), r.longest().Milliseconds()).Text()
	if err != nil {
		return fmt.Errorf("put sample of %v into redis: %w", pod, err)
	}
	r.saw(s.Epoch)
	if len(newer) == 8 {
		r.m.older.Inc()
		r.saw(binary.BigEndian.Uint64([]byte(newer)))
	}
	return nil
}

// Get asks for the time to live and the value of each pod in one pipeline: one
// round trip, or one to each node of a cluster at the same time.
func (r *Redis) Get(ctx context.Context, pods []Pod) (found map[Pod]Sample, err error) {
	defer func(start time.Time) { r.m.done("redis", "get", start, err) }(time.Now())
	found = make(map[Pod]Sample, len(pods))
	if len(pods) == 0 {
		return found, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	pipe := r.client.Pipeline()
	left, values := make([]*redis.DurationCmd, len(pods)), make([]*redis.StringCmd, len(pods))
	for i, pod := range pods {
		// The value second: if another is put between the two, the sample looks
		// older than it is, not fresher.
		left[i], values[i] = pipe.PTTL(ctx, r.key(pod)), pipe.Get(ctx, r.key(pod))
	}
	if _, err := pipe.Exec(ctx); err != nil && !isReply(err) {
		return nil, fmt.Errorf("get samples from redis: %w", err)
	}
	for i, pod := range pods {
		s, fresh, err := r.read(left[i], values[i])
		if errors.Is(err, errGarbage) {
			r.m.garbage.Inc()
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get sample of %v from redis: %w", pod, err)
		}
		if fresh {
			r.saw(s.Epoch)
			found[pod] = s
		}
	}
	return found, nil
}

// read judges one pod's answer. Garbage is an error of that pod's alone.
func (r *Redis) read(left *redis.DurationCmd, value *redis.StringCmd) (s Sample, fresh bool, err error) {
	if err := left.Err(); err != nil {
		return Sample{}, false, err
	}
	text, err := value.Bytes()
	switch {
	case errors.Is(err, redis.Nil):
		return Sample{}, false, nil
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return Sample{}, false, fmt.Errorf("%w: %w", errGarbage, err)
	case err != nil:
		return Sample{}, false, err
	}
	if s, err = decode(text); err != nil {
		return Sample{}, false, err
	}
	switch remaining := left.Val(); {
	case remaining == noKey: // put since the first of the two commands
	case remaining < 0:
		return Sample{}, false, fmt.Errorf("%w: the key does not expire", errGarbage)
	case remaining > r.longest():
		return Sample{}, false, fmt.Errorf("%w: the key expires in %v", errGarbage, remaining)
	default:
		s.Age = max(0, r.TTL-remaining)
	}
	return s, true, nil
}

// longest is what a key may have left to live. More says that the server's clock
// was stepped back by more than a flush, and would keep the sample of a silent
// pod for as long. The pod's next flush mends it.
func (r *Redis) longest() time.Duration { return r.TTL + r.TTL/4 }

// noKey is go-redis' form of PTTL's answer -2.
const noKey = time.Duration(-2)

// isReply tells an answer of the server to one command from a failure of the
// exchange.
func isReply(err error) bool {
	_, reply := errors.AsType[redis.Error](err)
	return reply
}
