package image

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progress tells how a build goes: on a terminal one line a step that is
// overwritten each second, otherwise a line every half minute.
type progress struct {
	w     io.Writer
	every time.Duration
	again string // comes before a line that replaces the one before
}

func (b *builder) progress() progress {
	p := progress{w: b.Progress, every: 30 * time.Second}
	if f, ok := b.Progress.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			p.every, p.again = time.Second, "\x1b[A\r\x1b[K"
		}
	}
	return p
}

func (p progress) line(text string) { fmt.Fprintln(p.w, text) }

// start tells of a step until done is called.
func (p progress) start(name string, about time.Duration) (done func(error)) {
	begin := time.Now()
	p.line(fmt.Sprintf("%-8s about %v", name, round(about)))
	stop := make(chan struct{})
	var told sync.WaitGroup
	told.Go(func() {
		tick := time.NewTicker(p.every)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				p.line(fmt.Sprintf("%s%-8s %v of about %v", p.again, name, round(time.Since(begin)), round(about)))
			}
		}
	})
	return func(err error) {
		close(stop)
		told.Wait()
		state := "done in"
		if err != nil {
			state = "ended without result after"
		}
		p.line(fmt.Sprintf("%s%-8s %s %v", p.again, name, state, time.Since(begin).Round(100*time.Millisecond)))
	}
}
