package analysis

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// wrk2LogsEnv names a folder with the LATA authors' raw logs of the DAG in
// scenario A at 10, 30 and 50 RPS (public repository hokunpark98/ICSOC2024).
const wrk2LogsEnv = "HEARTBED_WRK2_LOGS"

// authorsMethods maps what the authors' paths call a method to our names.
var authorsMethods = map[string]string{
	"default_1": "default", "default_2": "default+lata",
	"localization": "pack", "optTraffic": "opttraffic", "proposed": "larp+lata",
}

// The medians of the raw logs are those in measured/icsoc-a.yaml, to its last
// digit where the folder holds all runs of a method (default and localization)
// and within 15 % where it holds 6 of 10.
func TestImportWrk2AuthorsLogs(t *testing.T) {
	dir := os.Getenv(wrk2LogsEnv)
	if dir == "" {
		t.Skipf("%s does not name the folder with the authors' raw logs", wrk2LogsEnv)
	}
	im, err := ImportWrk2(dir, ImportOptions{Scenario: "ICSOC-A", App: "dag", Methods: authorsMethods})
	require.NoError(t, err)
	require.Empty(t, im.Log.Problems)
	require.Equal(t, 81, im.Log.Runs)

	ref, err := ICSOCA()
	require.NoError(t, err)
	all := Deviate(ref.cells(true), Set{Results: im.Results}.Cells(), ref.Source)
	require.Len(t, all, 1)
	require.Len(t, all[0].Cells, 15)
	runs := map[string]int{}
	for _, c := range ref.Cells {
		runs[c.Policy] = c.N
	}
	for _, c := range all[0].Cells {
		for _, v := range c.Values {
			if runs[c.Policy] == 10 {
				require.InDelta(t, 0, v.Pct, 15, "%s at %v RPS, %s", c.Policy, c.RPS, v.Metric)
			} else {
				require.InDelta(t, v.Measured, v.Simulated, 0.0501, "%s at %v RPS, %s", c.Policy, c.RPS, v.Metric)
			}
		}
	}
	require.Equal(t, all[0].OrderPairs, all[0].OrderRight)
}
