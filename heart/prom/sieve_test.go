package prom

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

// sifted is what a sieve takes out of an answer, and what it leaves.
func sifted(answer io.Reader) (all []series, rest string, err error) {
	s := sieve{take: func(x series) {
		all = append(all, series{slices.Clone(x.labels), slices.Clone(x.points), x.histogram})
	}}
	left, err := s.sift(answer)
	return all, string(left), err
}

// What is taken from a real answer is what the API's client finds in it,
// wherever the answer is cut into pieces on its way; one that ends early is
// an error.
func TestSieveAgainstTheClient(t *testing.T) {
	p := prometheus(t)
	e := p.exporter(t)
	e.play(`odd{value="quote \" backslash \\ line \n <&> ü€😀"} 0.1` + "\n" + `odd{value="b"} NaN` + "\n" + `odd{value=""} 1.7976931348623157e+308` + "\n")
	e.wait(t, 1)
	query := `odd{case="` + t.Name() + `"}[1m]`

	c, err := newClient(p.config(t, ours, ours).WithDefaults())
	require.NoError(t, err)
	value, _, err := c.ask(t.Context(), query, time.Time{})
	require.NoError(t, err)
	var want []series
	for _, stream := range value.(model.Matrix) {
		want = append(want, series{labels: labelsOf(stream.Metric), points: stream.Values})
	}
	require.Len(t, want, 3)

	resp, err := http.Get(p.URL + "/api/v1/query?query=" + url.QueryEscape(query))
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	for _, r := range []io.Reader{strings.NewReader(string(text)), iotest.OneByteReader(strings.NewReader(string(text)))} {
		got, rest, err := sifted(r)
		require.NoError(t, err)
		require.JSONEq(t, `{"status": "success", "data": {"resultType": "matrix", "result": []}}`, rest)
		requireSame(t, want, got)
	}
	for n := range text[:len(text)-1] {
		_, _, err := sifted(strings.NewReader(string(text[:n])))
		var answer *v1.Error
		require.ErrorAs(t, err, &answer, "%s", text[:n])
	}
	broken := errors.New("line went dead")
	_, _, err = sifted(io.MultiReader(strings.NewReader(string(text[:50])), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
}

// requireSame compares series, where NaN is NaN.
func requireSame(t *testing.T, want, got []series) {
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, want[i].labels, got[i].labels)
		require.Len(t, got[i].points, len(want[i].points))
		for n, p := range want[i].points {
			q := got[i].points[n]
			require.Equal(t, p.Timestamp, q.Timestamp)
			require.Equal(t, math.Float64bits(float64(p.Value)), math.Float64bits(float64(q.Value)))
		}
	}
}

func TestSieve(t *testing.T) {
	const point = `[1.5, "2"]`
	series := func(x string) string {
		return `{"status": "success", "data": {"resultType": "matrix", "result": [` + x + `]}, "warnings": ["w"], "infos": ["i"]}`
	}
	all, rest, err := sifted(strings.NewReader(series(`{"metric": {"a": "b"}, "values": [` + point + `]}, {"metric": {}, "histograms": [[1, {"count": "3"}]]}`)))
	require.NoError(t, err)
	require.JSONEq(t, series(""), rest, "warnings are left")
	require.Len(t, all, 2)
	require.Equal(t, labels{{"a", "b"}}, all[0].labels)
	require.Equal(t, []model.SamplePair{{Timestamp: 1500, Value: 2}}, all[0].points)
	require.False(t, all[0].histogram)
	require.True(t, all[1].histogram)
	require.Empty(t, all[1].points)

	for _, same := range []string{
		`{"status": "success", "data": {"resultType": "scalar", "result": [1.5, "2"]}}`,
		`{"status": "success", "data": {"resultType": "vector", "result": [{"metric": {"a": "b"}, "value": [1.5, "2"]}]}}`,
		`{"status": "success", "data": {"result": [{"metric": {}, "values": []}], "resultType": "matrix"}}`, // the type comes late
	} {
		all, rest, err := sifted(strings.NewReader(same))
		require.NoError(t, err)
		require.Empty(t, all)
		require.JSONEq(t, same, rest)
	}
	for _, faulty := range []string{
		"", "no JSON", "[]", `{"data": 1}`, series(`1`), series(`{"metric": {"a": 1}}`), series(`{"values": [1]}`), series(`{"values": [[1]]}`),
		series(`{"values": [[1, 2]]}`), series(`{"values": [[1, "two"]]}`), series(`{"values": [["1", "2"]]}`), series(`{"values": [[1, "2", 3]]}`),
	} {
		_, _, err := sifted(strings.NewReader(faulty))
		var answer *v1.Error
		require.ErrorAs(t, err, &answer, "%s", faulty)
	}
}

// All queries of all observations go over one connection, those with answers
// too long for a stated length, too.
func TestConnectionIsKept(t *testing.T) {
	p := prometheus(t)
	e := p.exporter(t)
	callers := map[string]float64{}
	for i := range 100 {
		callers[fmt.Sprintf("a%d", i)] = 1
	}
	page := ourPage("b1", 1, callers)
	e.play(page, page)
	e.played(t)
	target, err := url.Parse(p.URL)
	require.NoError(t, err)
	var opened atomic.Int32
	proxy := httptest.NewUnstartedServer(httputil.NewSingleHostReverseProxy(target))
	proxy.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	proxy.Start()
	defer proxy.Close()
	c := p.config(t, ours, ours)
	c.Address = proxy.URL
	o := observer(t, c, pair())
	for range 3 {
		_, err := o.Observe(t.Context())
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, opened.Load())
}
