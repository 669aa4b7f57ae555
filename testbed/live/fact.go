package live

// Fact is something about this machine that a user of a backend may need to
// know. State is ok, low or missing, or info where nothing is judged.
type Fact struct{ Name, State, Note string }
