//go:build amd64 && !purego

package kernel

import (
	"errors"
	"slices"
)

// groupsSets are the scalar loop and the vectors of few rows for any number of rows; tiles
// are in a set of their own, which is missing here if no processor's or system's.
func groupsSets() []groupsSet {
	sets := []groupsSet{groupsBy(portable(), groupsScalar)}
	hasVectors := slices.ContainsFunc(available(), func(o *ops) bool { return o.name == avx512().name })
	if hasVectors {
		sets = append(sets, groupsBy(avx512(), groupsVectors()))
	} else {
		sets = append(sets, groupsSet{name: "AVX-512 in groups", missing: errors.New("the processor has no AVX-512")})
	}
	if err := noAMX(); err != nil {
		sets = append(sets, groupsSet{name: amxName, missing: err})
	}
	return sets
}
