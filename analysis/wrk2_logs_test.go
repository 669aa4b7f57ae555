package analysis

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// wrk2LogsEnv names a folder with the LATA authors' raw logs of the DAG in
// scenario A (public repository hokunpark98/ICSOC2024).
const wrk2LogsEnv = "HEARTBED_WRK2_LOGS"

// authorsMethods maps what the authors' paths call a method to our names.
var authorsMethods = map[string]string{
	"default_1": "default", "default_2": "default+lata",
	"localization": "pack", "optTraffic": "opttraffic", "proposed": "larp+lata",
}

func TestImportWrk2AuthorsLogs(t *testing.T) {
	dir := os.Getenv(wrk2LogsEnv)
	if dir == "" {
		t.Skipf("%s does not name the folder with the authors' raw logs", wrk2LogsEnv)
	}
	im, err := ImportWrk2(dir, ImportOptions{Scenario: "ICSOC-A", App: "dag", Methods: authorsMethods})
	require.NoError(t, err)
	require.Empty(t, im.Log.Problems)
	require.Equal(t, 81, im.Log.Runs)
	require.Equal(t, []string{"default", "pack", "opttraffic", "default+lata", "larp+lata"}, im.Log.Methods)
	for _, c := range (Set{Results: im.Results}).Cells() {
		t.Logf("%-12s %3.0f n=%d sat=%d inv=%d mean %.2f p50 %.2f p90 %.2f p99 %.2f", c.Policy, c.RPS, c.N, c.Saturated, c.Invalid, *c.MeanMs, c.P50Ms.Median, c.P90Ms.Median, c.P99Ms.Median)
	}
}
