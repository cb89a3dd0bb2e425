package device

import (
	"io/fs"
	"path"
	"slices"
	"strings"
)

// group is the directory of one control group that limits memory.
type group struct {
	dir   string // below the root directory, without a leading slash
	files groupFiles
}

// groupFiles are the names of what a group's directory holds.
type groupFiles struct {
	limits []string
	usage  string
	idle   string // in memory.stat: file cache not used lately, children's included
}

var (
	// Beyond memory.high processes are slowed down until they give memory back.
	version2 = groupFiles{limits: []string{"memory.max", "memory.high"}, usage: "memory.current", idle: "inactive_file"}
	version1 = groupFiles{limits: []string{"memory.limit_in_bytes"}, usage: "memory.usage_in_bytes", idle: "total_inactive_file"}
)

// groupsOf lists the groups the process is in and all that those are in, as far up as they
// can be seen: a limit of any of them binds.
func groupsOf(root fs.FS) []group {
	member, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil // a kernel without control groups
	}
	mounts, err := fs.ReadFile(root, "proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var groups []group
	// A line is hierarchy:controllers:path; version 2 has the hierarchy 0 and names none.
	for line := range strings.Lines(string(member)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		kind, files := "", groupFiles{}
		switch {
		case parts[0] == "0" && parts[1] == "":
			kind, files = "cgroup2", version2
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			kind, files = "cgroup", version1
		default:
			continue
		}
		for _, m := range mountsOf(string(mounts), kind) {
			for _, dir := range m.upwards(parts[2]) {
				groups = append(groups, group{dir, files})
			}
		}
	}
	return groups
}

// mount is where a hierarchy of groups can be seen, from the group root on.
type mount struct{ root, point string }

// mountsOf finds the mounts of version 2, or those of version 1 with the memory controller.
func mountsOf(mountinfo, kind string) []mount {
	var mounts []mount
	for line := range strings.Lines(mountinfo) {
		// 36 35 98:0 /root /point options optional... - type source options
		front, back, ok := strings.Cut(strings.TrimSpace(line), " - ")
		fields, rest := strings.Fields(front), strings.Fields(back)
		if !ok || len(fields) < 5 || len(rest) < 3 || rest[0] != kind {
			continue
		}
		if kind == "cgroup" && !slices.Contains(strings.Split(rest[2], ","), "memory") {
			continue
		}
		mounts = append(mounts, mount{unescape(fields[3]), unescape(fields[4])})
	}
	return mounts
}

// unescape undoes how mountinfo writes what would end a field.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace

// upwards lists the directories of a group and of those above it, the group's own first.
// Where the group lies outside what the mount shows, as in a container whose mount begins
// elsewhere, there is only the mount's root to look at.
func (m mount) upwards(group string) []string {
	top := strings.TrimPrefix(path.Clean(m.point), "/")
	if !fs.ValidPath(top) {
		return nil
	}
	below, inside := "", false
	if path.Clean(group) == group { // no ".." that leads out of the namespace
		if m.root == "/" {
			below, inside = group, true
		} else if below, inside = strings.CutPrefix(group, m.root); inside {
			inside = below == "" || below[0] == '/'
		}
	}
	dir := top
	if inside && fs.ValidPath(path.Join(top, below)) {
		dir = path.Join(top, below)
	}
	dirs := []string{dir}
	for dir != top {
		dir = path.Dir(dir)
		dirs = append(dirs, dir)
	}
	return dirs
}
