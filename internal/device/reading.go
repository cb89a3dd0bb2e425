//go:build linux && cgo

package device

import (
	"math"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// A GPU may be lost between any two questions, so each answer counts for itself.

// describe asks all about one GPU.
func (p *Prober) describe(index int) GPU {
	g := GPU{Index: index, State: OK, ECC: Unknown, MIG: Unknown}
	dev, ret := p.lib.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		g.State, g.Reason = stateOf(ret), "the driver does not open it: "+p.explainGPU(ret)+"."
		return g
	}
	var missing gaps
	g.UUID, g.Name, g.Memory = p.identify(dev, &missing)
	g.State, g.Reason = missing.state(), missing.sentence()
	if g.State == Lost {
		return g // there is nothing more to ask
	}
	if p.has("nvmlDeviceGetUtilizationRates") {
		if u, ret := dev.GetUtilizationRates(); ret == nvml.SUCCESS {
			g.Utilization = &Utilization{Compute: int(u.Gpu), Memory: int(u.Memory)}
		}
	}
	g.ECC, g.MIG = Unsupported, Unsupported
	if p.has("nvmlDeviceGetEccMode") {
		now, _, ret := dev.GetEccMode()
		g.ECC = modeOf(now == nvml.FEATURE_ENABLED, ret)
	}
	if p.has("nvmlDeviceGetMigMode") {
		now, _, ret := dev.GetMigMode()
		g.MIG = modeOf(now == nvml.DEVICE_MIG_ENABLE, ret)
	}
	if g.MIG == Enabled {
		g.Instances = p.instances(dev)
	}
	if p.processes {
		g.Processes = p.listProcesses(dev)
	}
	return g
}

// identify asks what a GPU or an instance must have.
func (p *Prober) identify(dev nvml.Device, missing *gaps) (uuid, name string, memory *Memory) {
	uuid, ret := dev.GetUUID()
	if ret != nvml.SUCCESS {
		uuid = ""
		missing.add(p, "UUID", ret)
	}
	name, ret = dev.GetName()
	if ret != nvml.SUCCESS {
		name = ""
		missing.add(p, "name", ret)
	}
	return uuid, name, p.memory(dev, missing)
}

// memory is nil where the driver does not say. The second version of the call tells apart
// what the driver keeps for itself; drivers before 510 do not have it.
func (p *Prober) memory(dev nvml.Device, missing *gaps) *Memory {
	if p.has("nvmlDeviceGetMemoryInfo_v2") {
		if m, ret := dev.GetMemoryInfo_v2(); ret == nvml.SUCCESS && m.Total > 0 {
			return &Memory{Total: m.Total, Used: m.Used, Free: m.Free, Reserved: &m.Reserved}
		}
		// Otherwise the first version says what there is to say.
	}
	m, ret := dev.GetMemoryInfo()
	switch {
	case ret == nvml.ERROR_NOT_SUPPORTED:
		missing.note(Unreported, "memory", "the driver reports none for it, as for GPUs that share the host's memory")
	case ret != nvml.SUCCESS:
		missing.add(p, "memory", ret)
	case m.Total == 0:
		missing.note(Unreported, "memory", "the driver reports 0 bytes in total")
	default:
		return &Memory{Total: m.Total, Used: m.Used, Free: m.Free}
	}
	return nil
}

// instances lists the parts of a GPU in MIG mode; their numbers may have holes.
func (p *Prober) instances(dev nvml.Device) []Instance {
	if !p.has("nvmlDeviceGetMaxMigDeviceCount") || !p.has("nvmlDeviceGetMigDeviceHandleByIndex") {
		return nil
	}
	most, ret := dev.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return nil
	}
	var list []Instance
	for i := range most {
		part, ret := dev.GetMigDeviceHandleByIndex(i)
		if ret == nvml.ERROR_NOT_FOUND {
			continue
		}
		in := Instance{Index: i}
		if ret != nvml.SUCCESS {
			in.Reason = "the driver does not open it: " + p.explainGPU(ret) + "."
		} else {
			var missing gaps
			in.UUID, in.Name, in.Memory = p.identify(part, &missing)
			in.Reason = missing.sentence()
		}
		list = append(list, in)
	}
	return list
}

// listProcesses is nil where the driver does not say.
func (p *Prober) listProcesses(dev nvml.Device) []Process {
	var list []Process
	for _, kind := range []struct {
		name, symbol string
		list         func() ([]nvml.ProcessInfo, nvml.Return)
	}{
		{"compute", "nvmlDeviceGetComputeRunningProcesses", dev.GetComputeRunningProcesses},
		{"graphics", "nvmlDeviceGetGraphicsRunningProcesses", dev.GetGraphicsRunningProcesses},
	} {
		// go-nvml takes the newest version that is there, without looking for the first.
		if !p.has(kind.symbol) && !p.has(kind.symbol+"_v2") && !p.has(kind.symbol+"_v3") {
			continue
		}
		infos, ret := kind.list()
		if ret != nvml.SUCCESS {
			continue
		}
		for _, info := range infos {
			process := Process{PID: int(info.Pid), Kind: kind.name}
			// NVML_VALUE_NOT_AVAILABLE: in MIG mode without permission, or on Windows.
			if info.UsedGpuMemory != math.MaxUint64 {
				process.Used = &info.UsedGpuMemory
			}
			// The driver is asked and not /proc, where in a container the number may
			// be that of another process.
			if p.has("nvmlSystemGetProcessName") {
				if name, ret := p.lib.SystemGetProcessName(process.PID); ret == nvml.SUCCESS {
					process.Name = name
				}
			}
			list = append(list, process)
		}
	}
	return list
}

// explainGPU is explain for what concerns one GPU or instance, which may be closed to a user
// to whom the driver is open.
func (p *Prober) explainGPU(ret nvml.Return) string {
	if ret == nvml.ERROR_NO_PERMISSION {
		return "this user may not ask for it (see the permissions of /dev/nvidia*; in MIG mode the whole GPU is root's)"
	}
	_, why := p.explain(ret)
	return why
}

func modeOf(on bool, ret nvml.Return) Mode {
	switch {
	case ret == nvml.ERROR_NOT_SUPPORTED:
		return Unsupported
	case ret != nvml.SUCCESS:
		return Unknown
	case on:
		return Enabled
	}
	return Disabled
}

func stateOf(ret nvml.Return) GPUState {
	switch ret {
	case nvml.ERROR_GPU_IS_LOST:
		return Lost
	case nvml.ERROR_NO_PERMISSION:
		return Denied
	}
	return Faulty
}

// gaps gathers what is unknown of a device, by reason.
type gaps []gap

type gap struct {
	state GPUState
	why   string
	what  []string
}

func (g *gaps) add(p *Prober, what string, ret nvml.Return) {
	g.note(stateOf(ret), what, p.explainGPU(ret))
}

func (g *gaps) note(state GPUState, what, why string) {
	for i := range *g {
		if (*g)[i].why == why {
			(*g)[i].what = append((*g)[i].what, what)
			return
		}
	}
	*g = append(*g, gap{state, why, []string{what}})
}

// state is OK without gaps. Of several reasons, that the GPU is lost says most.
func (g gaps) state() GPUState {
	if len(g) == 0 {
		return OK
	}
	for _, gap := range g {
		if gap.state == Lost {
			return Lost
		}
	}
	return g[len(g)-1].state // that of the memory, which is asked for last, if it is unknown
}

func (g gaps) sentence() string {
	var clauses []string
	for _, gap := range g {
		what, verb := gap.what[0], " is"
		if last := len(gap.what) - 1; last > 0 {
			what, verb = strings.Join(gap.what[:last], ", ")+" and "+gap.what[last], " are"
		}
		clauses = append(clauses, "its "+what+verb+" unknown: "+gap.why)
	}
	if len(clauses) == 0 {
		return ""
	}
	return strings.Join(clauses, "; ") + "."
}
