package live

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	got, err := parse(strings.NewReader(`# TYPE heartbed_cpu_seconds_total counter
heartbed_cpu_seconds_total{component="b",node="n1",replica="b1"} 1.5
# TYPE heartbed_requests_total counter
heartbed_requests_total{caller_replica="a1",code="OK",component="b",node="n1",replica="b1"} 10
heartbed_requests_total{caller_replica="a1",code="Unavailable",component="b",node="n1",replica="b1"} 2
heartbed_requests_total{caller_replica="a2",code="OK",component="b",node="n1",replica="b1"} 5
`))
	require.NoError(t, err)
	require.Equal(t, Reading{
		CPUSeconds: 1.5, Answered: map[string]float64{"a1": 10, "a2": 5}, Requests: map[string]float64{"a1": 12, "a2": 5},
	}, got)
	for name, text := range map[string]string{
		"no CPU":      "heartbed_requests_total{code=\"OK\"} 1\n",
		"empty":       "",
		"no metrics":  "<html>\n",
		"another CPU": "process_cpu_seconds_total 3\n",
	} {
		_, err := parse(strings.NewReader(text))
		require.Error(t, err, name)
	}
}
