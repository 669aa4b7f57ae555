package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// step makes one folder of the cache.
type step struct {
	name   string
	about  time.Duration // on two idle cores, from empty caches
	inputs []string      // all that determines the result
	make   func(ctx context.Context, dir string) error
}

func (s step) key() string    { return hash(append([]string{s.name}, s.inputs...)...) }
func (s step) folder() string { return s.name + "-" + s.key() }

// unfinished starts the name of a folder in which a step is at work.
const unfinished = "tmp-"

// run makes the steps that the cache lacks, in order.
func (b *builder) run(ctx context.Context, steps []step) error {
	var missing []step
	var about time.Duration
	for _, s := range steps {
		dir := filepath.Join(b.Cache, s.folder())
		if _, err := os.Stat(dir); err == nil {
			now := time.Now()
			if err := os.Chtimes(dir, now, now); err != nil {
				return fmt.Errorf("note that a step is in use: %w", err)
			}
			continue
		}
		missing = append(missing, s)
		about += s.about
	}
	if len(missing) == 0 {
		return nil
	}
	if err := b.canRun(missing); err != nil {
		return err
	}
	p := b.progress()
	p.line(fmt.Sprintf("%d of %d steps to do, about %v on two idle cores; kept in %s", len(missing), len(steps), round(about), b.Cache))
	for _, s := range missing {
		done := p.start(s.name, s.about)
		err := b.makeStep(ctx, s)
		done(err)
		if err != nil {
			return err
		}
	}
	return nil
}

// makeStep runs a step in a folder of its own, which takes its name when it is
// complete.
func (b *builder) makeStep(ctx context.Context, s step) (err error) {
	tmp := filepath.Join(b.Cache, unfinished+s.folder())
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if err := errors.Join(os.RemoveAll(tmp), os.Mkdir(tmp, 0o755)); err != nil {
		return fmt.Errorf("image step %s: %w", s.name, err)
	}
	if err := s.make(ctx, tmp); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("image build interrupted in step %s (finished steps are kept, the next build goes on here): %w", s.name, context.Cause(ctx))
		}
		return fmt.Errorf("image step %s: %w", s.name, err)
	}
	return os.Rename(tmp, filepath.Join(b.Cache, s.folder()))
}

// canRun tells before the work starts what would stop it in the middle.
func (b *builder) canRun(missing []step) error {
	var errs []error
	free, err := freeBytes(b.Cache)
	if err != nil {
		errs = append(errs, err)
	} else if free < wantFree {
		errs = append(errs, fmt.Errorf("the disk of %s has %.1f GB left and a build takes up to %d GB: free some, or set HEARTBED_CACHE", b.Cache, float64(free)/(1<<30), wantFree>>30))
	}
	for _, s := range missing {
		if s.name == debianName {
			errs = append(errs, checkDebian())
		}
		if (s.name == debianName || s.name == storeName) && os.Geteuid() != 0 {
			errs = append(errs, fmt.Errorf("step %s installs packages into a folder, which takes root: sudo heartbed image build", s.name))
		}
	}
	return errors.Join(errs...)
}

// keepUnused is how long the cache keeps what no build has used.
const keepUnused = 24 * time.Hour

// prune removes what other versions of the steps left in the cache.
func prune(cache string, steps []step) error {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return fmt.Errorf("tidy the cache: %w", err)
	}
	var errs []error
	for _, e := range entries {
		for _, s := range steps {
			old := strings.HasPrefix(e.Name(), s.name+"-") && e.Name() != s.folder() && unused(e)
			if old || strings.HasPrefix(e.Name(), unfinished) {
				errs = append(errs, os.RemoveAll(filepath.Join(cache, e.Name())))
				break
			}
		}
	}
	return errors.Join(errs...)
}

func unused(e fs.DirEntry) bool {
	info, err := e.Info()
	return err == nil && time.Since(info.ModTime()) > keepUnused
}

func round(d time.Duration) time.Duration { return d.Round(time.Second) }
