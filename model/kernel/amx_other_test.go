//go:build !amd64 || purego

package kernel

func groupsSets() []groupsSet { return []groupsSet{groupsBy(portable(), groupsScalar)} }
