package device

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

const gib = 1 << 30

// String is a table with a line per GPU, or the reason why there is none. It ends
// without a line break.
func (r Report) String() string {
	if len(r.GPUs) == 0 {
		return "No GPU: " + r.Reason
	}
	var s strings.Builder
	if r.Driver != "" || r.CUDA != "" {
		fmt.Fprintf(&s, "Driver %s, CUDA %s\n\n", orUnknown(r.Driver), orUnknown(r.CUDA))
	}
	table(&s, "GPU\tNAME\tTOTAL\tUSED\tFREE\tRESERVED\tBUSY\tECC\tMIG\tUUID", func(w io.Writer) {
		for _, g := range r.GPUs {
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", g.Index, orUnknown(g.Name), g.Memory.cells(), g.Utilization, g.ECC, g.MIG, orUnknown(g.UUID))
			for _, i := range g.Instances {
				fmt.Fprintf(w, "%d:%d\t%s\t%s\t\t\t\t%s\n", g.Index, i.Index, orUnknown(i.Name), i.Memory.cells(), orUnknown(i.UUID))
			}
		}
	})
	for _, g := range r.GPUs {
		if g.Reason != "" {
			fmt.Fprintf(&s, "GPU %d: %s\n", g.Index, g.Reason)
		}
		for _, i := range g.Instances {
			if i.Reason != "" {
				fmt.Fprintf(&s, "GPU %d:%d: %s\n", g.Index, i.Index, i.Reason)
			}
		}
	}
	r.writeProcesses(&s)
	return strings.TrimSuffix(s.String(), "\n")
}

func (r Report) writeProcesses(s *strings.Builder) {
	n := 0
	for _, g := range r.GPUs {
		n += len(g.Processes)
	}
	if n == 0 {
		return
	}
	s.WriteString("\n")
	table(s, "GPU\tPID\tKIND\tUSED\tPROCESS", func(w io.Writer) {
		for _, g := range r.GPUs {
			for _, p := range g.Processes {
				used := "unknown"
				if p.Used != nil {
					used = Size(*p.Used)
				}
				fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\n", g.Index, p.PID, p.Kind, used, orUnknown(p.Name))
			}
		}
	})
}

// table writes lines of cells between tabs as columns.
func table(to io.Writer, head string, rows func(io.Writer)) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, head)
	rows(w)
	_ = w.Flush() // a strings.Builder does not fail
}

// cells are total, used, free and reserved.
func (m *Memory) cells() string {
	if m == nil {
		return "unknown\tunknown\tunknown\tunknown"
	}
	reserved := "unknown"
	if m.Reserved != nil {
		reserved = Size(*m.Reserved)
	}
	return Size(m.Total) + "\t" + Size(m.Used) + "\t" + Size(m.Free) + "\t" + reserved
}

func (u *Utilization) String() string {
	if u == nil {
		return "unknown"
	}
	return fmt.Sprintf("%d %%", u.Compute)
}

// Size is a number of bytes for people, in the unit in which it has few digits.
func Size(bytes uint64) string {
	switch {
	case bytes >= gib:
		return fmt.Sprintf("%.1f GiB", float64(bytes)/gib)
	case bytes >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	case bytes >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(bytes)/(1<<10))
	}
	return fmt.Sprintf("%d B", bytes)
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// short is why there is no GPU, for a line that says more than that.
var short = map[State]string{
	NoDevice:     "the driver sees none",
	NoLibrary:    "no NVIDIA driver",
	BadLibrary:   "the NVIDIA library cannot be used",
	NoDriver:     "the NVIDIA driver is not loaded",
	NoPermission: "the NVIDIA driver refuses this user",
	Failed:       "the NVIDIA driver failed",
	Hung:         "the NVIDIA driver does not answer",
	NotBuilt:     "this build cannot ask",
}

// Line is the report in one line: few words where there is no GPU.
func (r Report) Line() string {
	if len(r.GPUs) == 0 {
		return "none (" + short[r.State] + ")"
	}
	var parts []string
	for _, g := range r.GPUs {
		memory := "memory unknown"
		switch {
		case g.State == Lost:
			memory = "lost"
		case g.Memory != nil:
			memory = fmt.Sprintf("%.1f of %.1f GiB free", float64(g.Memory.Free)/gib, float64(g.Memory.Total)/gib)
		}
		if g.MIG == Enabled {
			memory += fmt.Sprintf(", MIG instances: %d", len(g.Instances))
		}
		parts = append(parts, fmt.Sprintf("%d %s, %s", g.Index, orUnknown(g.Name), memory))
	}
	return strings.Join(parts, "; ")
}
