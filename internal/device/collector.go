package device

import (
	"context"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Collector gives the readings of a Monitor, and the host's memory, to Prometheus. What is
// unknown is absent: a 0 would be taken for a reading.
type Collector struct {
	gpus *Monitor
	host func() (Host, error)

	driver, state, info, memory, utilization, hostMemory *prometheus.Desc
}

// NewCollector makes a Collector; each scrape asks the Monitor, which bounds how long that
// takes, and host.
func NewCollector(gpus *Monitor, host func() (Host, error)) *Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &Collector{
		gpus: gpus, host: host,
		driver:      desc("tailor_gpu_driver_state", "1 for what asking the NVIDIA driver came to, 0 for the others.", "state"),
		state:       desc("tailor_gpu_state", "1 for the state a GPU is in, 0 for the others.", "gpu", "state"),
		info:        desc("tailor_gpu_info", "1 for each GPU that the driver describes.", "gpu", "uuid", "name", "driver", "cuda"),
		memory:      desc("tailor_gpu_memory_bytes", "Memory of a GPU, or of its MIG instance where mig is not empty, as NVML reports it: total, used, free, reserved.", "gpu", "mig", "uuid", "kind"),
		utilization: desc("tailor_gpu_utilization_ratio", "Share of the last sampling period in which a GPU computed, or its memory was in use, 0 to 1.", "gpu", "uuid", "kind"),
		hostMemory:  desc("tailor_host_memory_bytes", "Main memory, within the limits of the control groups: total, available.", "kind"),
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.driver, c.state, c.info, c.memory, c.utilization, c.hostMemory} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	set := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	memory := func(m *Memory, gpu, mig, uuid string) {
		if m == nil {
			return
		}
		set(c.memory, float64(m.Total), gpu, mig, uuid, "total")
		set(c.memory, float64(m.Used), gpu, mig, uuid, "used")
		set(c.memory, float64(m.Free), gpu, mig, uuid, "free")
		if m.Reserved != nil {
			set(c.memory, float64(*m.Reserved), gpu, mig, uuid, "reserved")
		}
	}
	if h, err := c.host(); err == nil {
		set(c.hostMemory, float64(h.Total), "total")
		set(c.hostMemory, float64(h.Available), "available")
	}
	r := c.gpus.Report(context.Background()) // scrapes have no context
	for _, s := range States {
		set(c.driver, truth(r.State == s), string(s))
	}
	for _, g := range r.GPUs {
		gpu := strconv.Itoa(g.Index)
		for _, s := range GPUStates {
			set(c.state, truth(g.State == s), gpu, string(s))
		}
		if g.UUID != "" {
			set(c.info, 1, gpu, g.UUID, g.Name, r.Driver, r.CUDA)
		}
		memory(g.Memory, gpu, "", g.UUID)
		for _, i := range g.Instances {
			memory(i.Memory, gpu, strconv.Itoa(i.Index), i.UUID)
		}
		if u := g.Utilization; u != nil {
			set(c.utilization, float64(u.Compute)/100, gpu, g.UUID, "compute")
			set(c.utilization, float64(u.Memory)/100, gpu, g.UUID, "memory")
		}
	}
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
