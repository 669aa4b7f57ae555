// Package analysis turns the results of trials into something a person can
// judge: cells with intervals, paired differences, verdicts on the published
// figures, tables, figures and a report.
//
// The pipeline is read -> cells -> statistics -> claims -> report:
//
//   - Read joins results.jsonl files; nothing is computed from a line that
//     cannot be read, and the line is named.
//   - Set.Cells groups runs by (scenario, app, backend, policy, rate). Within
//     a run a percentile comes from the run's own histogram; across runs it is
//     the median of the runs' percentiles with a distribution-free interval.
//     Percentiles are never averaged.
//   - Judge compares cells with the published figures in claims.yaml.
//   - Write puts summary.json, tables, figures, report.md and report.html into
//     a directory; the same results give the same bytes.
//
// Every cell has one source: simulated, emulated or measured. Cells of
// different sources stand beside each other, labelled; they are never merged.
//
// The package takes types from experiments and runs nothing.
package analysis
