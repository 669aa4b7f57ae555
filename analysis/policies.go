package analysis

import (
	"cmp"
	"slices"
	"strings"
)

// knownPolicies is the order in which methods are listed, from the plainest
// to the most elaborate. A method that is not here comes after them, by name.
var knownPolicies = []string{
	"kubeproxy", "default", "roundrobin", "least-request", "localization", "pack",
	"opttraffic", "lata", "default+lata", "larp+lata",
	"heart-equal", "heart-last", "heart-nofilter", "heart",
}

func comparePolicies(a, b string) int {
	return cmp.Or(cmp.Compare(policyRank(a), policyRank(b)), strings.Compare(a, b))
}

func policyRank(name string) int {
	if i := slices.Index(knownPolicies, name); i >= 0 {
		return i
	}
	return len(knownPolicies)
}
