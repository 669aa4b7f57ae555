package service

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// put tells the replica something and returns what it answers.
func (r *running) put(t *testing.T, path, text string) (code int, answer string) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+r.MetricsAddr().String()+path, strings.NewReader(text))
	require.NoError(t, err)
	resp, err := httpClient(t).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func TestInflationHoldsFromNowOn(t *testing.T) {
	b := start(t, Config{Component: "b", App: chain(burns(20))})
	conn := dialTo(t, b)
	cost := func() float64 {
		before := processCPU()
		require.NoError(t, call(t.Context(), conn))
		return processCPU() - before
	}
	require.NoError(t, call(t.Context(), conn)) // connects
	for _, c := range []struct {
		told string
		want float64 // CPU seconds
	}{{"", 0.020}, {"5", 0.100}, {"2.5", 0.050}, {"1", 0.020}} {
		if c.told != "" {
			code, answer := b.put(t, InflationPath, c.told)
			require.Equal(t, http.StatusOK, code, answer)
		}
		require.InDelta(t, c.want+0.005, cost(), 0.010, "told %q", c.told)
	}
}

func TestInflationIsANumberAboveZero(t *testing.T) {
	b := start(t, Config{Component: "b", App: chain(burns(1))})
	for _, text := range []string{"", "0", "-1", "NaN", "+Inf", "two"} {
		code, answer := b.put(t, InflationPath, text)
		require.Equal(t, http.StatusBadRequest, code)
		require.Contains(t, answer, "expected a number above 0")
	}
}
