// Command bench measures the parts of Heartbed whose speed matters, side by
// side with the best known alternative where there is one. It prints figures
// and judges nothing: times belong to the machine they were taken on.
//
//	go run ./bench                run all sections
//	go run ./bench -only lemon    run one
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
)

// section is one part of the benchmark. It prints a table to out.
type section struct {
	name  string
	about string
	run   func(ctx context.Context, out io.Writer, o options) error
}

// options hold for all sections.
type options struct {
	seed uint64 // of the random problems
	reps int    // repetitions a figure is the median of
}

var sections = []section{
	{"lemon", "minimum cost flow: heart/flow against LEMON's network simplex", runLemon},
	{"step", "scheduling time: a step of HEART and LATA", runStep},
	{"simulator", "events of the simulator", runSimulator},
	{"delay", "packet delay between two namespaces: error and drops", runDelay},
	{"xds", "routing tables over xDS: time to the last ack, CPU a request and hop", runXDS},
	{"service", "service processes: memory of 25, CPU a call at a low and at the highest rate", runService},
	{"setup", "namespaces: time until 25 replicas on 5 nodes stand", runSetup},
	{"loadgen", "load generator: highest rate on one core beside vegeta, memory", runLoadgen},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
	case ctx.Err() != nil:
		os.Exit(130)
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("bad arguments")

// run executes the sections that args ask for.
func run(ctx context.Context, args []string, out io.Writer) error {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := flags.String("only", "", "sections to run, separated by commas (default all): "+strings.Join(names(), ", "))
	flags.Uint64Var(&o.seed, "seed", 1, "seed of the random problems")
	flags.IntVar(&o.reps, "reps", 9, "repetitions a figure is the median of")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if flags.NArg() > 0 || o.reps < 1 {
		return fmt.Errorf("%w: want flags only and -reps of at least 1, got %q", errUsage, args)
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	for _, s := range chosen {
		fmt.Fprintf(out, "== %s: %s ==\n", s.name, s.about)
		if err := s.run(ctx, out, o); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Fprintln(out)
	}
	return nil
}

func names() []string {
	var names []string
	for _, s := range sections {
		names = append(names, s.name)
	}
	return names
}

// choose returns the sections named in a comma separated list; all if it is empty.
func choose(only string) ([]section, error) {
	if only == "" {
		return sections, nil
	}
	var chosen []section
	for _, name := range strings.Split(only, ",") {
		i := slices.Index(names(), strings.TrimSpace(name))
		if i < 0 {
			return nil, fmt.Errorf("%w: no section %q, there are: %s", errUsage, name, strings.Join(names(), ", "))
		}
		chosen = append(chosen, sections[i])
	}
	return chosen, nil
}
