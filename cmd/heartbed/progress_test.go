package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/experiments"
)

// In a log, progress is at most a line every five seconds; failures are told
// at once.
func TestProgressInALog(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	p := newProgress(&out, 20, func() time.Time { return now })
	p.result(experiments.Result{Verdict: experiments.Valid}, true)
	for range 10 {
		now = now.Add(time.Second)
		p.result(experiments.Result{Verdict: experiments.Valid}, false)
	}
	p.result(experiments.Result{Verdict: experiments.Invalid}, false)
	p.result(experiments.Result{Trial: experiments.Trial{App: "pair", Policy: "heart", RPS: 2.5, Rep: 3}, Verdict: experiments.Invalid, Error: "no room"}, false)
	p.end()
	require.Equal(t, `6 of 20 trials, 1.0 a second, 14s left
11 of 20 trials, 1.0 a second, 9s left
failed: pair heart at 2.5 RPS, repetition 3: no room
13 of 20 trials in 10s, 1 kept from before, 1 failed, 1 invalid
`, out.String())
}

// On a terminal the state is overwritten in place.
func TestProgressOnATerminal(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	p := newProgress(&out, 2, func() time.Time { return now })
	p.terminal = true
	for range 2 {
		now = now.Add(time.Second)
		p.result(experiments.Result{Verdict: experiments.Valid}, false)
	}
	p.end()
	require.Equal(t, "\r\x1b[K1 of 2 trials, 1.0 a second, 1s left\r\x1b[K2 of 2 trials, 1.0 a second, 0s left\r\x1b[K2 of 2 trials in 2s\n", out.String())
}
