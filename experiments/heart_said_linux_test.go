package experiments_test

import (
	"context"
	"math"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"heartbed/testbed"
	"heartbed/testbed/live"
	"heartbed/workloads"
	"heartbed/workloads/loadgen"
	"heartbed/workloads/service"
)

// limit is what anything awaited may take on a machine that is busy otherwise.
const limit = 3 * time.Minute

// until looks until something holds.
func until(ctx context.Context, t *testing.T, what string, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); {
		require.Less(t, time.Since(began), limit, "waited for %s", what)
		require.NoError(t, live.Pause(ctx, 100*time.Millisecond))
	}
}

// amounts are shares or requests, by caller group and callee group.
type amounts map[string]map[string]float64

// said is what the heart that leads tells of itself.
type said struct {
	pod   string
	steps map[string]float64 // by the stage that failed; none = done
	table amounts
}

// leader asks the heart that leads; nil = none.
func (l *lab) leader(ctx context.Context, t *testing.T) *said {
	pods, err := l.client.CoreV1().Pods(shop).List(ctx, heartPods)
	require.NoError(t, err)
	for _, pod := range pods.Items {
		if pod.Status.PodIP == "" || pod.DeletionTimestamp != nil {
			continue
		}
		metrics := l.metrics(ctx, pod.Status.PodIP+":8080")
		if sum(metrics, "heart_leader") != 1 {
			continue
		}
		s := &said{pod: pod.Name, steps: map[string]float64{}, table: amounts{}}
		for _, m := range metrics["heart_steps_total"].GetMetric() {
			s.steps[label(m, "failed")] = m.GetCounter().GetValue()
		}
		for _, m := range metrics["heart_share_ratio"].GetMetric() {
			s.table.add(label(m, "from"), label(m, "group"), m.GetGauge().GetValue())
		}
		return s
	}
	return nil
}

// leads waits for a heart that leads.
func (l *lab) leads(ctx context.Context, t *testing.T) (s *said) {
	t.Helper()
	until(ctx, t, "leader", func() bool { s = l.leader(ctx, t); return s != nil })
	return s
}

// metrics of a pod; none while it does not answer.
func (l *lab) metrics(ctx context.Context, at string) map[string]*dto.MetricFamily {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/metrics", nil)
	if err != nil {
		return nil
	}
	response, err := l.http.Do(request)
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return nil
	}
	return families
}

func sum(families map[string]*dto.MetricFamily, name string) (all float64) {
	for _, m := range families[name].GetMetric() {
		all += m.GetGauge().GetValue()
	}
	return all
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func (a amounts) add(from, to string, n float64) {
	if a[from] == nil {
		a[from] = map[string]float64{}
	}
	a[from][to] += n
}

// of is what a callee group gets from all callers.
func (a amounts) of(to string) (all float64) {
	for _, row := range a {
		all += row[to]
	}
	return all
}

// group is the name of a replica's group in heart's tables.
func (l *lab) group(k int) string {
	return l.workloads.Layout.Replicas[k].Component + "@" + l.workloads.Pods[k].Spec.NodeName
}

// answered counts what the callees have answered so far; callees that do not
// answer are absent.
func (l *lab) answered(ctx context.Context) amounts {
	var callees []live.Replica
	groups := map[string]string{}
	for k, r := range l.workloads.Layout.Replicas {
		groups[r.Name] = l.group(k)
		if r.Component == "b" {
			callees = append(callees, r)
		}
	}
	scraper := live.NewScraper(callees, testbed.Control{}, l.beside.Dial)
	defer scraper.Close()
	all := amounts{}
	for name, reading := range scraper.ReadAll(ctx).Of {
		for caller, n := range reading.Answered {
			all.add(groups[caller], groups[name], n)
		}
	}
	return all
}

// since is what was sent after an earlier count. One that has started again
// counts for nothing.
func (a amounts) since(before amounts) amounts {
	sent := amounts{}
	for from, row := range a {
		for to, n := range row {
			if was := before[from][to]; n >= was {
				sent.add(from, to, n-was)
			}
		}
	}
	return sent
}

// differs is by how much what was sent differs from shares that were expected,
// at most, and the least number of requests of a caller. Chance, the number of
// standard deviations of random draws, is taken off.
func (sent amounts) differs(shares amounts, chance float64) (most, least float64) {
	least = math.Inf(1)
	for from, row := range shares {
		n := 0.0
		for _, k := range sent[from] {
			n += k
		}
		least = min(least, n)
		for to, share := range row {
			most = max(most, math.Abs(sent[from][to]/max(n, 1)-share)-chance*math.Sqrt(share*(1-share)/max(n, 1)))
		}
	}
	return most, least
}

// perCaller is the load of each caller in requests a second.
const perCaller = 80

// traffic is load that goes on until it is stopped.
type traffic struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu     sync.Mutex
	total  loadgen.Result
	faults []string
}

// offer offers load to all callers.
func (l *lab) offer(ctx context.Context) *traffic {
	ctx, cancel := context.WithCancel(ctx)
	o := &traffic{stop: cancel}
	for _, r := range l.workloads.Layout.Entries() {
		o.done.Go(func() {
			for seed := uint64(1); ctx.Err() == nil; seed++ {
				got, err := l.beside.Load(ctx, loadgen.Config{
					Target: "grpc://" + netip.AddrPortFrom(r.Addr, live.GRPCPort).String(), RPS: perCaller, Duration: 2 * time.Second, Seed: seed,
					Load: workloads.Load{Schedule: "open", Arrivals: "even", Timeout: workloads.Duration(10 * time.Second)},
				})
				o.add(ctx, got, err)
			}
		})
	}
	return o
}

func (o *traffic) add(ctx context.Context, r loadgen.Result, err error) {
	if ctx.Err() != nil {
		return // stopped in the middle
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.faults = append(o.faults, err.Error())
		return
	}
	o.total.Offered += r.Offered
	o.total.Answered += r.Answered
	o.faults = append(o.faults, r.Faults...)
}

// take is what came of the load until now, and begins to count anew.
func (o *traffic) take() (offered, answered int64, faults string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	offered, answered, faults = o.total.Offered, o.total.Answered, strings.Join(o.faults, "; ")
	o.total, o.faults = loadgen.Result{}, nil
	return offered, answered, faults
}

// allAnswered asserts that every request since the last count was.
func (o *traffic) allAnswered(t *testing.T) {
	t.Helper()
	offered, answered, faults := o.take()
	require.Positive(t, offered)
	require.Equal(t, offered, answered, faults)
}

// end stops the load.
func (o *traffic) end() {
	o.stop()
	o.done.Wait()
}

// inflate multiplies the CPU time of a callee's requests.
func (l *lab) inflate(ctx context.Context, t *testing.T, replica int, factor string) {
	t.Helper()
	l.put(ctx, t, replica, service.InflationPath, factor)
}

// put tells a replica something on its metrics port.
func (l *lab) put(ctx context.Context, t *testing.T, replica int, path, word string) {
	t.Helper()
	at := netip.AddrPortFrom(l.workloads.Layout.Replicas[replica].Addr, live.MetricsPort).String()
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+at+path, strings.NewReader(word))
	require.NoError(t, err)
	response, err := l.http.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
}
