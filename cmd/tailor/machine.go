package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"tailor/internal/device"
)

const (
	// readingAge is how old a reading may be that is told again: scrapes of several
	// replicas in one process are one question to the driver.
	readingAge = 5 * time.Second
	// scrapePatience bounds how long a driver that hangs holds up who asks a server.
	scrapePatience = 3 * time.Second
	// startPatience is for those who wait for the answer: a GPU that nobody keeps
	// initialized may take many seconds to wake up.
	startPatience = 30 * time.Second
)

// gpuFlags say where GPUs are looked for and how much of one is used.
type gpuFlags struct {
	library     string
	utilization float64
}

func (f *gpuFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.library, "nvml-library", "", "path of the NVIDIA management library (default: "+device.Library+", where the dynamic linker finds it)")
	flags.Float64Var(&f.utilization, "gpu-memory-utilization", 0.9, "share of a GPU's memory that an engine on it may bring into use, more than 0 and at most 1")
}

func (f *gpuFlags) validate(cmd *cobra.Command) error {
	if !(f.utilization > 0 && f.utilization <= 1) {
		return misuse(cmd, "--gpu-memory-utilization %v: must be more than 0 and at most 1", f.utilization)
	}
	return nil
}

// machine is what replicas in one process run on. A nil machine tells nothing.
type machine struct {
	prober *device.Prober
	gpus   *device.Monitor
	host   func() (device.Host, error)
}

func newMachine(o device.Options) *machine {
	prober := device.NewProber(o)
	return &machine{
		prober: prober,
		gpus:   device.NewMonitor(prober, readingAge, scrapePatience),
		host:   func() (device.Host, error) { return device.ReadHost(os.DirFS("/")) },
	}
}

// now is a reading for those who wait for it.
func (m *machine) now(ctx context.Context) device.Report {
	return device.NewMonitor(m.prober, 0, startPatience).Report(ctx)
}

// close says so where a call of the driver stays behind; it ends with the process.
func (m *machine) close(log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapePatience)
	defer cancel()
	if err := m.gpus.Close(ctx); err != nil {
		log.Warn("the NVIDIA driver is left with a question", "error", err)
	}
}

// readings are what GET /v1/devices and `tailor gpu --json` say.
type readings struct {
	Host *device.Host `json:"host"` // null: unknown
	device.Report
}

func (m *machine) readings(r device.Report) readings {
	all := readings{Report: r}
	if h, err := m.host(); err == nil {
		all.Host = &h
	}
	return all
}

// export is what a replica's server tells of the machine.
func (m *machine) export() (devices func(context.Context) any, gauges []prometheus.Collector) {
	if m == nil {
		return nil, nil
	}
	devices = func(ctx context.Context) any { return m.readings(m.gpus.Report(ctx)) }
	return devices, []prometheus.Collector{device.NewCollector(m.gpus, m.host)}
}

// announceMemory writes the lines of the ready message that say how the pool came to its
// size and what GPUs there are.
func (f *replicaFlags) announceMemory(ctx context.Context, out io.Writer) {
	if f.sized != "" {
		fmt.Fprintf(out, "  memory  %s\n", f.sized)
	}
	fmt.Fprintf(out, "  gpu     %s\n\n", f.machine.gpus.Report(ctx).Line())
}
