package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"tailor/internal/device"
)

func newGPU() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "gpu",
		Short: "List the GPUs' memory as NVML reports it, or say why there is none",
		Long: `List each GPU's total, used and free memory as NVML, the driver's management library, reports
it, or say why there is none. Tailor's model computes on the CPU; no GPU is needed.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report := device.NewProber().Probe()
			if asJSON {
				if report.GPUs == nil {
					report.GPUs = []device.GPU{} // a list, for programs that read it
				}
				out := json.NewEncoder(cmd.OutOrStdout())
				out.SetIndent("", "  ")
				return out.Encode(report)
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), report)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	return cmd
}

// gpuLine is a report in one line, for the ready message.
func gpuLine(r device.Report) string {
	if len(r.GPUs) == 0 {
		return "none: " + r.Reason
	}
	line := ""
	for i, g := range r.GPUs {
		if i > 0 {
			line += "; "
		}
		line += fmt.Sprintf("%d %s", g.Index, g.Name)
		if g.Memory != nil {
			const gib = 1 << 30
			line += fmt.Sprintf(", %.1f of %.1f GiB free", float64(g.Memory.Free)/gib, float64(g.Memory.Total)/gib)
		} else {
			line += ", memory unknown: " + g.Reason
		}
	}
	return line
}
