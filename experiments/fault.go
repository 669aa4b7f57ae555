package experiments

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrInput is wrapped by every error that the user's input caused, as opposed
// to a failure of the machine or of the program.
var ErrInput = errors.New("bad input")

// Fault is one thing that is wrong with an input.
type Fault struct {
	File    string // empty when it is not known
	Line    int    // 1-based; 0 = not known
	Field   string // path in the document, such as apps.dag.rps[1]
	Problem string // "found ..., expected ..."
}

func (f Fault) String() string {
	var b strings.Builder
	if f.File != "" {
		b.WriteString(f.File)
		if f.Line > 0 {
			fmt.Fprintf(&b, ":%d", f.Line)
		}
		b.WriteString(": ")
	}
	if f.Field != "" {
		b.WriteString(f.Field + ": ")
	}
	return b.String() + f.Problem
}

// Faults is all that is wrong with an input; as an error it wraps ErrInput.
type Faults []Fault

// Error lists the faults, one a line.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Is makes errors.Is(err, ErrInput) true.
func (fs Faults) Is(target error) bool { return target == ErrInput }

// add appends a fault of a field.
func (fs *Faults) add(field, format string, args ...any) {
	*fs = append(*fs, Fault{Field: field, Problem: fmt.Sprintf(format, args...)})
}

// addErr appends the faults that another package joined into err. Where a text
// begins with a path, as in "threads: found 0", the path becomes part of the
// field; prefix is cut off before.
func (fs *Faults) addErr(field, prefix string, err error) {
	if err == nil {
		return
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			fs.addErr(field, prefix, e)
		}
		return
	}
	text := strings.TrimPrefix(err.Error(), prefix)
	if path, problem, cut := strings.Cut(text, ": "); cut && !strings.ContainsAny(path, " \"") {
		field, text = join(field, path), problem
	}
	fs.add(field, "%s", text)
}

// without drops the faults that another one explains: those of a field that is
// faulty already or lies within a faulty one.
func (fs Faults) without(explained Faults) Faults {
	return slices.DeleteFunc(fs, func(f Fault) bool {
		return slices.ContainsFunc(explained, func(e Fault) bool {
			rest, within := strings.CutPrefix(f.Field, e.Field)
			return e.Field != "" && within && (rest == "" || rest[0] == '.' || rest[0] == '[')
		})
	})
}

// err gives the faults in the order of the files, nil when there are none.
func (fs Faults) err() error {
	if len(fs) == 0 {
		return nil
	}
	slices.SortStableFunc(fs, func(a, b Fault) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line)
	})
	return fs
}
