package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Options come from, the later over the earlier: the defaults, a file (--config), the
// environment (TAILOR_KV_BLOCKS for --kv-blocks), the command line.
//
//   - The file is flat YAML: a line "kv-blocks: 4096" for each option, a list as lines
//     "- item" under it or as [a, b]. A key that is no option of the command is an error.
//   - Of the environment only what names an option counts: platforms set variables of
//     their own there, such as Kubernetes TAILOR_PORT for a service called tailor.

const envPrefix = "TAILOR_"

// errOptions says that a file of options cannot be used.
var errOptions = errors.New("bad options")

// addOptionFlags defines the flags that say where options come from.
func addOptionFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.String("config", "", "file of options in YAML, such as kv-blocks: 4096; the command line and TAILOR_... variables count before it")
	flags.Bool("print-config", false, "print the options that would be used, as such a file, and do nothing else")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return applyOptions(cmd, os.LookupEnv) }
}

// isMeta tells whether a flag is about options and not one itself.
func isMeta(f *pflag.Flag) bool {
	return f.Name == "config" || f.Name == "print-config" || f.Name == "help"
}

// applyOptions sets the flags that the command line does not from the environment and the
// file, in this order.
func applyOptions(cmd *cobra.Command, env func(string) (string, bool)) error {
	flags := cmd.Flags()
	var file map[string]option
	if path, err := flags.GetString("config"); err == nil && path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return misuse(cmd, "--config: %v", err)
		}
		if file, err = parseOptions(string(text)); err != nil {
			return misuse(cmd, "--config %s: %v", path, err)
		}
		for name, o := range file {
			if f := flags.Lookup(name); f == nil || isMeta(f) {
				return misuse(cmd, "--config %s: line %d: %q is no option of %s", path, o.line, name, cmd.CommandPath())
			}
		}
	}
	var bad error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || isMeta(f) || bad != nil {
			return
		}
		variable := envPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if value, ok := env(variable); ok {
			if err := set(f, []string{value}); err != nil {
				bad = misuse(cmd, "%s: %v", variable, err)
			}
		} else if o, ok := file[f.Name]; ok {
			if err := set(f, o.values); err != nil {
				bad = misuse(cmd, "--config: line %d: %s: %v", o.line, f.Name, err)
			}
		}
	})
	if bad != nil {
		return bad
	}
	if only, err := flags.GetBool("print-config"); err == nil && only {
		cmd.RunE = func(cmd *cobra.Command, _ []string) error {
			printOptions(cmd.OutOrStdout(), flags)
			return nil
		}
	}
	return nil
}

func set(f *pflag.Flag, values []string) error {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.Replace(values)
	}
	if len(values) != 1 {
		return fmt.Errorf("%d values, want one", len(values))
	}
	return f.Value.Set(values[0])
}

// printOptions writes the file that gives these options. Keys are secrets, and stay so.
func printOptions(out io.Writer, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if isMeta(f) {
			return
		}
		list, ok := f.Value.(pflag.SliceValue)
		switch {
		case f.Name == "api-key" && ok && len(list.GetSlice()) > 0:
			fmt.Fprintf(out, "# api-key: %d given, not shown\n", len(list.GetSlice()))
		case ok && len(list.GetSlice()) == 0:
			fmt.Fprintf(out, "%s: []\n", f.Name)
		case ok:
			fmt.Fprintf(out, "%s:\n", f.Name)
			for _, value := range list.GetSlice() {
				fmt.Fprintf(out, "  - %s\n", strconv.Quote(value))
			}
		case f.Value.String() == "" && f.Value.Type() != "string":
			fmt.Fprintf(out, "# %s: not set\n", f.Name)
		case f.Value.Type() == "string":
			fmt.Fprintf(out, "%s: %s\n", f.Name, strconv.Quote(f.Value.String()))
		default:
			fmt.Fprintf(out, "%s: %s\n", f.Name, f.Value)
		}
	})
}

// option is what a file says of one.
type option struct {
	line   int
	values []string
}

// parseOptions reads flat YAML. Its errors name the line.
func parseOptions(text string) (map[string]option, error) {
	options := map[string]option{}
	last := "" // the key whose list may go on
	number := 0
	for line := range strings.Lines(text) {
		number++
		fail := func(what string) (map[string]option, error) {
			return nil, fmt.Errorf("%w: line %d: %s", errOptions, number, what)
		}
		line = strings.TrimRight(line, " \t\r\n")
		trimmed := strings.TrimLeft(line, " ")
		if trimmed == "" || trimmed[0] == '#' || line == "---" {
			continue
		}
		if item, ok := strings.CutPrefix(trimmed+" ", "- "); ok {
			if last == "" {
				return fail("an item of no list")
			}
			value, err := scalar(item)
			if err != nil {
				return fail(err.Error())
			}
			o := options[last]
			o.values = append(o.values, value)
			options[last] = o
			continue
		}
		key, rest, ok := strings.Cut(trimmed, ":")
		switch _, twice := options[key]; {
		case trimmed != line:
			return fail("it is set in from the left: options have no parts")
		case !ok || rest != "" && rest[0] != ' ':
			return fail("want name: value")
		case twice:
			return fail(fmt.Sprintf("%q is given twice", key))
		}
		values, isList, err := value(rest)
		if err != nil {
			return fail(err.Error())
		}
		options[key] = option{number, values}
		if last = ""; isList {
			last = key
		}
	}
	return options, nil
}

// value is what stands behind a key; open says that a list may follow on the next lines.
func value(text string) (values []string, open bool, err error) {
	text = strings.TrimSpace(text)
	if text == "" || text[0] == '#' {
		return nil, true, nil
	}
	if inner, ok := strings.CutPrefix(text, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		if !ok {
			return nil, false, errors.New("a list that begins with [ ends with ] on its line")
		}
		if strings.TrimSpace(inner) == "" {
			return nil, false, nil
		}
		for item := range strings.SplitSeq(inner, ",") {
			one, err := scalar(item)
			if err != nil {
				return nil, false, err
			}
			values = append(values, one)
		}
		return values, false, nil
	}
	one, err := scalar(text)
	return []string{one}, false, err
}

// scalar is a text in double or single quotes, or plain up to a remark.
func scalar(text string) (string, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return "", nil
	}
	switch text[0] {
	case '"':
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil || !isRemark(text[len(quoted):]) {
			return "", fmt.Errorf("%s is no text in quotes", text)
		}
		return strconv.Unquote(quoted)
	case '\'':
		inner, rest, ok := strings.Cut(text[1:], "'")
		if !ok || !isRemark(rest) {
			return "", fmt.Errorf("%s is no text in quotes", text)
		}
		return inner, nil
	case '{', '&', '*', '!', '|', '>', '%', '@', '`':
		return "", fmt.Errorf("%s: options are plain values and lists of them; a text that begins with %q goes into quotes", text, text[0])
	}
	plain, _, _ := strings.Cut(text, " #")
	return strings.TrimSpace(plain), nil
}

func isRemark(text string) bool {
	text = strings.TrimSpace(text)
	return text == "" || text[0] == '#'
}
