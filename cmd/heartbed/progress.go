package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"heartbed/experiments"
)

// progress tells on stderr how far a run is: one line that is overwritten on
// a terminal, otherwise a line every few seconds.
type progress struct {
	w        io.Writer
	terminal bool
	total    int
	now      func() time.Time

	start, said                   time.Time
	done, resumed, failed, broken int
}

// How often progress is told.
const (
	onTerminal = 200 * time.Millisecond
	inLog      = 5 * time.Second
)

func newProgress(w io.Writer, total int, now func() time.Time) *progress {
	p := &progress{w: w, total: total, now: now, start: now(), said: now()}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// result counts one result and says so when it is time.
func (p *progress) result(r experiments.Result, resumed bool) {
	p.done++
	if resumed {
		p.resumed++
		return
	}
	switch {
	case r.Error != "":
		p.failed++
		p.line(fmt.Sprintf("failed: %s %s at %v RPS, repetition %d: %s", r.Trial.App, r.Trial.Policy, r.Trial.RPS, r.Trial.Rep, r.Error))
	case r.Verdict == experiments.Invalid:
		p.broken++
	}
	every := inLog
	if p.terminal {
		every = onTerminal
	}
	if now := p.now(); now.Sub(p.said) >= every {
		p.said = now
		p.say(p.text())
	}
}

// text is the state in one line: trials, rate and time left.
func (p *progress) text() string {
	elapsed := p.now().Sub(p.start)
	text := fmt.Sprintf("%d of %d trials", p.done, p.total)
	if fresh := p.done - p.resumed; fresh > 0 && elapsed > 0 {
		each := elapsed / time.Duration(fresh)
		text += fmt.Sprintf(", %.1f a second, %v left", float64(fresh)/elapsed.Seconds(), (each * time.Duration(p.total-p.done)).Round(time.Second))
	}
	return text
}

// end says what the run brought.
func (p *progress) end() {
	text := fmt.Sprintf("%d of %d trials in %v", p.done, p.total, p.now().Sub(p.start).Round(100*time.Millisecond))
	for _, part := range []struct {
		n    int
		what string
	}{{p.resumed, "kept from before"}, {p.failed, "failed"}, {p.broken, "invalid"}} {
		if part.n > 0 {
			text += fmt.Sprintf(", %d %s", part.n, part.what)
		}
	}
	p.line(text)
}

// say writes the state; on a terminal it stays open to be overwritten.
func (p *progress) say(text string) {
	if p.terminal {
		fmt.Fprintf(p.w, "\r\x1b[K%s", text)
		return
	}
	fmt.Fprintln(p.w, text)
}

// line writes a line that stays.
func (p *progress) line(text string) {
	p.say(text)
	if p.terminal {
		fmt.Fprintln(p.w)
	}
}
