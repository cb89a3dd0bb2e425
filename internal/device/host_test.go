package device

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
)

const (
	mib = 1 << 20

	// The machine of the fixtures has 16 GiB, of which 12 GiB are available.
	fixtureMeminfo = "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:   12582912 kB\nBuffers: 1 kB\nHugePages_Total:       0\n"
	fixtureMounts2 = "22 1 8:1 / / rw - ext4 /dev/sda rw\n30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	fixtureMounts1 = "31 22 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	noLimit1       = "9223372036854771712\n"
)

func system(files ...string) fstest.MapFS {
	root := fstest.MapFS{"proc/meminfo": {Data: []byte(fixtureMeminfo)}}
	for i := 0; i < len(files); i += 2 {
		root[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return root
}

func TestReadHost(t *testing.T) {
	const all, free = 16 * gib, 12 * gib
	for _, c := range []struct {
		name string
		root fstest.MapFS
		want Host
	}{
		{"no control groups", system(), Host{all, free, ""}},
		{"old kernel", fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal: 2048 kB\nMemFree: 1024 kB\n")}}, Host{2 * mib, mib, ""}},
		{"version 2, max everywhere", system("proc/self/cgroup", "0::/user.slice/a.scope\n", "proc/self/mountinfo", fixtureMounts2,
			"sys/fs/cgroup/user.slice/a.scope/memory.max", "max\n", "sys/fs/cgroup/user.slice/a.scope/memory.current", "1048576\n",
			"sys/fs/cgroup/user.slice/memory.max", "max\n"), Host{all, free, ""}},
		{"version 2, own limit", system("proc/self/cgroup", "0::/a\n", "proc/self/mountinfo", fixtureMounts2,
			"sys/fs/cgroup/a/memory.max", "4294967296\n", "sys/fs/cgroup/a/memory.high", "max\n", "sys/fs/cgroup/a/memory.current", "3221225472\n",
			"sys/fs/cgroup/a/memory.stat", "anon 2147483648\nfile 1073741824\ninactive_file 536870912\nactive_file 536870912\n"),
			Host{4 * gib, 3 * gib / 2, "/sys/fs/cgroup/a/memory.max"}},
		{"version 2, limit of a group above", system("proc/self/cgroup", "0::/pod/container\n", "proc/self/mountinfo", fixtureMounts2,
			"sys/fs/cgroup/pod/memory.max", "2147483648\n", "sys/fs/cgroup/pod/memory.current", "1073741824\n",
			"sys/fs/cgroup/pod/container/memory.max", "8589934592\n", "sys/fs/cgroup/pod/container/memory.current", "104857600\n"),
			Host{2 * gib, gib, "/sys/fs/cgroup/pod/memory.max"}},
		{"version 2, slowed down earlier", system("proc/self/cgroup", "0::/a\n", "proc/self/mountinfo", fixtureMounts2,
			"sys/fs/cgroup/a/memory.max", "4294967296\n", "sys/fs/cgroup/a/memory.high", "3221225472\n", "sys/fs/cgroup/a/memory.current", "1073741824\n"),
			Host{3 * gib, 2 * gib, "/sys/fs/cgroup/a/memory.high"}},
		{"version 2, a namespace of its own", system("proc/self/cgroup", "0::/\n", "proc/self/mountinfo", fixtureMounts2,
			"sys/fs/cgroup/memory.max", "536870912\n", "sys/fs/cgroup/memory.current", "0\n"),
			Host{512 * mib, 512 * mib, "/sys/fs/cgroup/memory.max"}},
		{"version 2, outside the namespace", system("proc/self/cgroup", "0::/../../other\n", "proc/self/mountinfo", fixtureMounts2,
			"sys/fs/cgroup/memory.max", "536870912\n", "sys/fs/cgroup/memory.current", "0\n"),
			Host{512 * mib, 512 * mib, "/sys/fs/cgroup/memory.max"}},
		{"use beyond the limit", system("proc/self/cgroup", "0::/a\n", "proc/self/mountinfo", fixtureMounts2,
			"sys/fs/cgroup/a/memory.max", "1073741824\n", "sys/fs/cgroup/a/memory.current", "1073745920\n"),
			Host{gib, 0, "/sys/fs/cgroup/a/memory.max"}},
		{"limit wider than what the machine has left", system("proc/self/cgroup", "0::/a\n", "proc/self/mountinfo", fixtureMounts2,
			"sys/fs/cgroup/a/memory.max", "15032385536\n", "sys/fs/cgroup/a/memory.current", "0\n"), Host{14 * gib, free, ""}},
		{"version 1, no limit", system("proc/self/cgroup", "4:memory:/a\n1:cpu:/\n", "proc/self/mountinfo", fixtureMounts1,
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes", noLimit1, "sys/fs/cgroup/memory/a/memory.usage_in_bytes", "4096\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes", noLimit1), Host{all, free, ""}},
		{"version 1, nested", system("proc/self/cgroup", "1:cpu:/\n4:memory,hugetlb:/pod/a\n0::/\n", "proc/self/mountinfo", fixtureMounts1+fixtureMounts2,
			"sys/fs/cgroup/memory/pod/a/memory.limit_in_bytes", noLimit1, "sys/fs/cgroup/memory/pod/a/memory.usage_in_bytes", "1048576\n",
			"sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "1073741824\n", "sys/fs/cgroup/memory/pod/memory.usage_in_bytes", "536870912\n",
			"sys/fs/cgroup/memory/pod/memory.stat", "inactive_file 1\ntotal_inactive_file 268435456\n"),
			Host{gib, 768 * mib, "/sys/fs/cgroup/memory/pod/memory.limit_in_bytes"}},
		{"version 1, mounted from the container's group on", system("proc/self/cgroup", "4:memory:/docker/abc\n", "proc/self/mountinfo",
			"35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n", "sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n"),
			Host{gib, gib, "/sys/fs/cgroup/memory/memory.limit_in_bytes"}},
		{"a name with a space", system("proc/self/cgroup", "0::/a b:c\n", "proc/self/mountinfo", "30 22 0:26 / /cg\\040dir rw - cgroup2 cgroup2 rw\n",
			"cg dir/a b:c/memory.max", "1073741824\n", "cg dir/a b:c/memory.current", "0\n"),
			Host{gib, gib, "/cg dir/a b:c/memory.max"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ReadHost(c.root)
			if err != nil || got != c.want {
				t.Errorf("got %+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

func TestReadHostFails(t *testing.T) {
	for _, text := range []string{"", "MemTotal: lots kB\n", "MemTotal: 5 MB\n", "MemTotal: 0 kB\n", "MemTotal: 18446744073709551615 kB\n"} {
		if h, err := ReadHost(fstest.MapFS{"proc/meminfo": {Data: []byte(text)}}); !errors.Is(err, ErrHost) {
			t.Errorf("%q: %+v, %v", text, h, err)
		}
	}
	if _, err := ReadHost(fstest.MapFS{}); !errors.Is(err, ErrHost) {
		t.Errorf("no /proc: %v", err)
	}
}

func TestReadThisHost(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skipf("there is no /proc/meminfo on %s", runtime.GOOS)
	}
	h, err := ReadHost(os.DirFS("/"))
	t.Logf("%+v", h)
	if err != nil || h.Available == 0 || h.Available > h.Total || (h.Limit != "" && !strings.HasPrefix(h.Limit, "/")) {
		t.Errorf("%+v, %v", h, err)
	}
}

func FuzzReadHost(f *testing.F) {
	f.Add(fixtureMeminfo, "0::/a\n", fixtureMounts2, "4096\n", "inactive_file 1\n")
	f.Add(fixtureMeminfo, "4:memory:/\n", fixtureMounts1, "max\n", "total_inactive_file x\n")
	f.Fuzz(func(t *testing.T, meminfo, member, mounts, number, stats string) {
		root := system("proc/self/cgroup", member, "proc/self/mountinfo", mounts)
		root["proc/meminfo"].Data = []byte(meminfo)
		for _, dir := range []string{"sys/fs/cgroup/", "sys/fs/cgroup/a/", "sys/fs/cgroup/memory/"} {
			for _, name := range []string{"memory.max", "memory.current", "memory.limit_in_bytes", "memory.usage_in_bytes"} {
				root[dir+name] = &fstest.MapFile{Data: []byte(number)}
			}
			root[dir+"memory.stat"] = &fstest.MapFile{Data: []byte(stats)}
		}
		h, err := ReadHost(root)
		if err != nil && !errors.Is(err, ErrHost) {
			t.Errorf("%v", err)
		}
		if h.Available > h.Total {
			t.Errorf("%+v", h)
		}
	})
}
