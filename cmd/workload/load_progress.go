package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"heartbed/workloads/loadgen"
)

// loadProgress tells on stderr how a load goes on: one line that is
// overwritten on a terminal, otherwise a line every few seconds.
type loadProgress struct {
	w        io.Writer
	terminal bool
	open     bool // the line on the terminal is not ended
}

func newLoadProgress(w io.Writer) *loadProgress {
	p := &loadProgress{w: w}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

func (p *loadProgress) every() time.Duration {
	if p.terminal {
		return 500 * time.Millisecond
	}
	return 5 * time.Second
}

func (p *loadProgress) say(s loadgen.Progress) {
	start, end := "", "\n"
	if p.terminal {
		start, end, p.open = "\r\x1b[K", "", true
	}
	fmt.Fprint(p.w, start+progressText(s)+end)
}

func (p *loadProgress) end() {
	if p.open {
		fmt.Fprintln(p.w)
	}
}

// progressText is the state in one line; what is zero and should be is left out.
func progressText(s loadgen.Progress) string {
	text := fmt.Sprintf("%v of %v: %.1f answers/s, %d outstanding, P50 %s ms, P99 %s ms",
		s.Elapsed.Round(time.Second), s.Duration, s.RPS, s.Outstanding, inMs(s.P50), inMs(s.P99))
	for _, part := range []struct {
		n    int64
		what string
	}{{s.Waiting, "waiting for a connection"}, {s.Failed, "failed"}, {s.TimedOut, "timed out"}} {
		if part.n > 0 {
			text += fmt.Sprintf(", %d %s", part.n, part.what)
		}
	}
	return text
}

func inMs(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/1e6) }
