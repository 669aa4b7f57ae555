package heartbed

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"heartbed/experiments"
)

// Every field of the scenario format stands in docs/scenarios.md.
func TestScenarioDocsNameEveryField(t *testing.T) {
	raw, err := os.ReadFile("docs/scenarios.md")
	require.NoError(t, err)
	doc := string(raw)
	fields := map[string]bool{}
	yamlFields(reflect.TypeFor[experiments.Scenario](), fields)
	require.Greater(t, len(fields), 60)
	for name := range fields {
		if !strings.Contains(doc, "`"+name+"`") && !strings.Contains(doc, "."+name+"`") {
			t.Errorf("docs/scenarios.md: field %q is missing", name)
		}
	}
}

// yamlFields collects the names of all fields below a type.
func yamlFields(t reflect.Type, into map[string]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		yamlFields(t.Elem(), into)
	case reflect.Struct:
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
			if name == "" || name == "-" {
				continue
			}
			into[name] = true
			yamlFields(t.Field(i).Type, into)
		}
	}
}
