package workloads

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"
)

// Duration is a time.Duration that is written with its unit ("180s", "7ms");
// a bare number is refused because its unit would be a guess.
type Duration time.Duration

// Std gives the standard library's type.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// Seconds gives the duration in seconds.
func (d Duration) Seconds() float64 { return time.Duration(d).Seconds() }

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalYAML writes the duration with its unit.
func (d Duration) MarshalYAML() (any, error) { return d.String(), nil }

// UnmarshalYAML reads "90s", "1m30s", "7ms"; a value without a unit or below
// zero is an error that names the line.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	switch {
	case err != nil:
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: found %q, expected a duration with its unit, such as 90s or 7ms", n.Line, n.Value)}}
	case v < 0:
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: found %q, expected a duration of 0s or more", n.Line, n.Value)}}
	}
	*d = Duration(v)
	return nil
}
