package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagGroups prints a command's flags under headings: a list of fifty is read by nobody.
type flagGroups struct {
	titles []string
	sets   []*pflag.FlagSet
}

// collect puts the flags that define adds to cmd under a title.
func (g *flagGroups) collect(title string, cmd *cobra.Command, define func()) {
	before := map[string]bool{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { before[f.Name] = true })
	define()
	set := pflag.NewFlagSet(title, pflag.ContinueOnError)
	set.SortFlags = false
	cmd.Flags().SortFlags = false
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !before[f.Name] {
			set.AddFlag(f)
		}
	})
	g.titles, g.sets = append(g.titles, title), append(g.sets, set)
}

// install makes the command's usage show the groups; those of commands below it stay as
// they are.
func (g *flagGroups) install(cmd *cobra.Command) {
	plain := (&cobra.Command{}).UsageFunc()
	cmd.SetUsageFunc(func(c *cobra.Command) error {
		if c != cmd {
			return plain(c)
		}
		out := c.OutOrStderr()
		fmt.Fprintf(out, "Usage:\n  %s\n  %s compare A.json B.json\n  %s schema\n\nExamples:\n%s\n",
			c.UseLine(), c.CommandPath(), c.CommandPath(), c.Example)
		for i, set := range g.sets {
			fmt.Fprintf(out, "\n%s:\n%s", g.titles[i], set.FlagUsages())
		}
		fmt.Fprintf(out, "\nGlobal:\n%s", c.InheritedFlags().FlagUsages())
		return nil
	})
}
