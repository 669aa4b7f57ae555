package prom

// join finds out which replica or node of the topology a series is of, by the
// value of one label, and keeps count of series that are of none.
type join struct {
	round *round
	source
	what    string // replica or node
	label   string
	names   map[string]bool
	wanted  string // one of the names, for messages
	found   int
	without int    // series without the label
	other   string // a value that is none of the names
}

// join prepares a join by a label.
func (r *round) join(s source, what, label string) *join {
	j := &join{round: r, source: s, what: what, label: label, names: map[string]bool{}}
	if what == "replica" {
		for _, replica := range r.topology.Replicas {
			j.names[replica.Name] = true
		}
		j.wanted = r.topology.Replicas[0].Name
		return j
	}
	for _, node := range r.topology.Nodes {
		j.names[node.Name] = true
		j.wanted = node.Name
	}
	return j
}

// name is the value of the label if the topology has it.
func (j *join) name(l labels) (string, bool) {
	value := l.get(j.label)
	switch {
	case value == "":
		j.without++
	case j.names[value]:
		j.found++
		return value, true
	default:
		j.other = value
	}
	return "", false
}

// err is the error of a query whose series are of nothing in the topology.
// If only some lack the label it is a warning: their replicas are absent.
func (j *join) err(query string) error {
	switch {
	case j.found > 0 && j.without > 0:
		j.round.warn("%s: left out %d series without the label %s", j.source.name, j.without, j.label)
	case j.found == 0 && j.other != "" && !j.mayBeSilent:
		return j.round.fault(j.source, query, "label %s is %q and the like, expected names of %ss such as %q", j.label, j.other, j.what, j.wanted)
	case j.found == 0 && j.without > 0:
		return j.round.fault(j.source, query, "none of %d series has the label %s that is to name the %s", j.without, j.label, j.what)
	}
	return nil
}
