package workloads

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func TestDurationIsReadWithItsUnit(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "1m30s": 90 * time.Second, "7ms": 7 * time.Millisecond, "300us": 300 * time.Microsecond,
		"1.5h": 90 * time.Minute, `"2s"`: 2 * time.Second, "0s": 0, "0": 0, "-0s": 0,
	} {
		var v struct{ Period Duration }
		require.NoError(t, yaml.Unmarshal([]byte("period: "+text), &v), text)
		require.Equal(t, want, v.Period.Std(), text)
		require.Equal(t, want.Seconds(), v.Period.Seconds())

		written, err := yaml.Marshal(v)
		require.NoError(t, err)
		require.Equal(t, "period: "+want.String()+"\n", string(written))
	}
}

func TestDurationRefusesWhatHasNoUnit(t *testing.T) {
	for text, want := range map[string]string{
		"90":       `line 3: found "90", expected a duration with its unit, such as 90s or 7ms`,
		"0.5":      `line 3: found "0.5", expected a duration with its unit`,
		"5 s":      `line 3: found "5 s", expected a duration with its unit`,
		"5sec":     `line 3: found "5sec", expected a duration with its unit`,
		"[5s]":     `line 3: found "", expected a duration with its unit`,
		"1e3s":     `line 3: found "1e3s", expected a duration with its unit`,
		"999999h":  "", // the longest is 292 years, which this is within
		"9999999h": `line 3: found "9999999h", expected a duration with its unit`,
		"-5s":      `line 3: found "-5s", expected a duration of 0s or more`,
	} {
		var v struct {
			Name   string
			Period Duration
		}
		err := yaml.Unmarshal([]byte("name: x\n\nperiod: "+text), &v)
		if want == "" {
			require.NoError(t, err, text)
		} else {
			require.ErrorContains(t, err, want, text)
		}
	}
}
