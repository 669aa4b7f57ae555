package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

var errRecipe = errors.New("no such recipe")

// kitchen is a command with one that fails as it is told.
func kitchen(fails error) *cobra.Command {
	root := &cobra.Command{Use: "kitchen", Short: "Cook"}
	root.AddCommand(&cobra.Command{
		Use: "bake CAKE", Args: Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			cmd.Println("on stderr")
			fmt.Fprintln(cmd.OutOrStdout(), "baked", args[0])
			return fails
		},
	})
	return root
}

func TestRun(t *testing.T) {
	hint := "See 'kitchen bake --help'."
	for name, c := range map[string]struct {
		args  []string
		fails error
		code  int
		out   string
		says  string
		hint  bool
	}{
		"done":           {args: []string{"bake", "tart"}, code: Done, out: "baked tart\n"},
		"no command":     {code: Done, out: "Cook\n\nUsage:\n  kitchen [flags]\n  kitchen [command]\n\n"},
		"help":           {args: []string{"bake", "--help"}, code: Done, out: "Usage:\n  kitchen bake CAKE [flags]\n"},
		"failed":         {args: []string{"bake", "x"}, fails: errors.New("burnt"), code: Failed, says: "kitchen: burnt\n"},
		"unknown":        {args: []string{"fry"}, code: BadInput, says: `kitchen: bad usage: unknown command "fry"`},
		"arguments":      {args: []string{"bake"}, code: BadInput, says: "accepts 1 arg(s)", hint: true},
		"flag":           {args: []string{"bake", "x", "--hot"}, code: BadInput, says: "unknown flag: --hot", hint: true},
		"usage":          {args: []string{"bake", "x"}, fails: fmt.Errorf("%w: too hot", ErrUsage), code: BadInput, says: "bad usage: too hot", hint: true},
		"input":          {args: []string{"bake", "x"}, fails: fmt.Errorf("%w: rotten", ErrInput), code: BadInput, says: "bad input: rotten"},
		"input of other": {args: []string{"bake", "x"}, fails: fmt.Errorf("x: %w", errRecipe), code: BadInput, says: "x: no such recipe"},
		"threshold":      {args: []string{"bake", "x"}, fails: fmt.Errorf("%w: flat", ErrThreshold), code: Threshold, says: "threshold missed: flat"},
		"interrupted":    {args: []string{"bake", "x"}, fails: fmt.Errorf("%w after 1 of 2", ErrInterrupted), code: Interrupted, says: "interrupted after 1 of 2"},
		"cancelled":      {args: []string{"bake", "x"}, fails: errors.Join(context.Canceled, errRecipe), code: Interrupted, says: "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			require.Equal(t, c.code, Run(t.Context(), kitchen(c.fails), c.args, &stdout, &stderr, errRecipe))
			require.Contains(t, stdout.String(), c.out)
			require.Contains(t, stderr.String(), c.says)
			require.Equal(t, c.hint, bytes.Contains(stderr.Bytes(), []byte(hint)), stderr.String())
		})
	}
}

func TestRootWithARunOfItsOwn(t *testing.T) {
	var stdout, stderr bytes.Buffer
	root := &cobra.Command{Use: "heat", RunE: func(cmd *cobra.Command, args []string) error {
		fmt.Fprint(cmd.OutOrStdout(), args)
		return nil
	}}
	require.Equal(t, Done, Run(t.Context(), root, []string{"a", "b"}, &stdout, &stderr))
	require.Equal(t, "[a b]", stdout.String())
	require.Empty(t, stderr.String())
}
