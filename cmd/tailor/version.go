package main

import "runtime/debug"

// version is the module's version as the Go toolchain recorded it; "devel" for a build from
// a working tree.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}
