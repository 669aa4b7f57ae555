package push

import (
	"fmt"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	metrics "github.com/envoyproxy/go-control-plane/envoy/service/metrics/v3"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// Values are what a proxy counts, at one moment.
type Values struct {
	Inbound  Requests // that the service serves
	Outbound Requests // that it sends, or that a gateway passes on
	// Connections are open now, Accepted so far.
	Connections int64
	Accepted    uint64
}

// Requests counts those of one direction.
type Requests struct {
	Active int64 // in flight now
	Begun  uint64
	Ended  uint64
	Time   time.Duration // how long those that ended took together
}

// source makes the messages of a proxy from its values.
type source struct {
	opts              Options
	inbound, outbound Requests // at the last flush
	// noise is made once: of thousands of proxies in a process it would be most
	// of the work.
	noise  []*dto.MetricFamily
	millis int64 // its timestamp
}

// identifier is the node's, for the first message of a stream.
func (s *source) identifier() *metrics.StreamMetricsMessage_Identifier {
	o := s.opts
	text := func(v string) *structpb.Value { return structpb.NewStringValue(v) }
	return &metrics.StreamMetricsMessage_Identifier{Node: &core.Node{
		Id:      fmt.Sprintf("%s~%s~%s.%s~%s.svc.cluster.local", o.Type, o.IP, o.Pod, o.Namespace, o.Namespace),
		Cluster: o.Pod + "." + o.Namespace,
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			"NAME": text(o.Pod), "NAMESPACE": text(o.Namespace), "CLUSTER_ID": text("Kubernetes"),
			"INSTANCE_IPS": text(o.IP), "INTERCEPTION_MODE": text("NONE"), // nothing stands between the port and the service
		}},
	}}
}

// families are those of a flush: counters, gauges, histograms, as Envoy orders
// them; a metric that was never used is left out.
func (s *source) families(v Values) []*dto.MetricFamily {
	millis := s.opts.Now().UnixMilli()
	f := flush{opts: s.opts, millis: &millis}
	for _, d := range []struct {
		prefix string
		now    Requests
	}{{"inbound", v.Inbound}, {"outbound", v.Outbound}} {
		if d.now.Begun > 0 {
			f.counter(f.http(d.prefix)+"downstream_rq_total", float64(d.now.Begun))
			f.gauge(f.http(d.prefix)+"downstream_rq_active", float64(d.now.Active))
		}
	}
	if v.Accepted > 0 {
		f.listener("downstream_cx_active", float64(v.Connections))
	}
	f.interval("inbound", v.Inbound, s.inbound)
	f.interval("outbound", v.Outbound, s.outbound)
	if s.millis = millis; len(s.noise) < s.opts.Noise {
		s.noise = noise(s.opts, &s.millis)
	}
	f.all = append(f.all, s.noise...)
	s.inbound, s.outbound = v.Inbound, v.Outbound
	return f.all
}

// flush collects the families of one.
type flush struct {
	opts   Options
	millis *int64 // the timestamp
	all    []*dto.MetricFamily
}

func (f *flush) add(name string, kind dto.MetricType, m *dto.Metric) {
	m.TimestampMs = f.millis
	f.all = append(f.all, &dto.MetricFamily{Name: &name, Type: &kind, Metric: []*dto.Metric{m}})
}

func (f *flush) counter(name string, v float64) {
	f.add(name, dto.MetricType_COUNTER, &dto.Metric{Counter: &dto.Counter{Value: &v}})
}

func (f *flush) gauge(name string, v float64) {
	f.add(name, dto.MetricType_GAUGE, &dto.Metric{Gauge: &dto.Gauge{Value: &v}})
}

// listener adds a gauge of the listener, whose address is a tag.
func (f *flush) listener(name string, v float64) {
	address := fmt.Sprintf("0.0.0.0_%d", f.opts.Port)
	if !f.opts.TagsAsLabels {
		f.gauge("listener."+address+"."+name, v)
		return
	}
	f.add("listener."+name, dto.MetricType_GAUGE, &dto.Metric{
		Gauge: &dto.Gauge{Value: &v},
		Label: []*dto.LabelPair{{Name: proto.String("listener_address"), Value: &address}},
	})
}

// http is what the names of a direction's HTTP metrics begin with. Istio's
// rules find no tag in it.
func (f *flush) http(direction string) string {
	delimiter := ";"
	if f.opts.Undelimited {
		delimiter = ""
	}
	return fmt.Sprintf("http.%s_0.0.0.0_%d%s.", direction, f.opts.Port, delimiter)
}

// interval adds the times (ms) of the requests that ended since the last flush,
// as summary and as histogram: Envoy's default is both.
func (f *flush) interval(direction string, now, last Requests) {
	if now.Ended == 0 {
		return
	}
	count := now.Ended - last.Ended
	sum := float64(now.Time-last.Time) / float64(time.Millisecond)
	name := f.http(direction) + "downstream_rq_time"
	f.add(name, dto.MetricType_SUMMARY, &dto.Metric{Summary: &dto.Summary{SampleCount: &count, SampleSum: &sum}})
	f.add(name, dto.MetricType_HISTOGRAM, &dto.Metric{Histogram: &dto.Histogram{SampleCount: &count, SampleSum: &sum}})
}

// Noise are names of gauges that a proxy sends beside those of its traffic, all
// with the value 1: the listeners that Istio has for itself (envoy issue 28488
// is about reading http.stats), what workers have of a listener, and others
// that Istio's proxies always send.
var Noise = []string{
	"http.stats.downstream_rq_active", "http.admin.downstream_rq_active", "http.agent.downstream_rq_active",
	"listener.admin.downstream_cx_active", "listener.0.0.0.0_15090.downstream_cx_active", "listener.0.0.0.0_15021.downstream_cx_active",
	"listener.0.0.0.0_8080.worker_0.downstream_cx_active", "listener.0.0.0.0_8080.worker_1.downstream_cx_active",
	"http.stats.downstream_cx_active", "server.live", "server.concurrency", "listener_manager.total_listeners_active",
	"cluster_manager.active_clusters", "cluster.xds-grpc.upstream_rq_active",
}

// noise are as many families as the options say: those of Noise, then more
// clusters.
func noise(o Options, millis *int64) []*dto.MetricFamily {
	f := flush{opts: o, millis: millis}
	for i := range o.Noise {
		if i < len(Noise) {
			f.gauge(Noise[i], 1)
			continue
		}
		f.gauge(fmt.Sprintf("cluster.outbound|%d||%s.svc.cluster.local;.upstream_rq_active", i, strings.Repeat("x", 12)), 1)
	}
	return f.all
}
