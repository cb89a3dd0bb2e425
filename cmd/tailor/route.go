package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"tailor/model/tokenizer"
	"tailor/router"
	"tailor/router/policy"
)

func newRoute() *cobra.Command {
	var (
		listen, chosen, model string
		replicas              []string
		blockSize, kvBlocks   int
		bytesOnly             bool
	)
	cmd := &cobra.Command{
		Use:   "route --replica URL [--replica URL ...]",
		Short: "Route over running replicas",
		Long: `Route over running replicas, Tailor's or any that speak the OpenAI API. A replica is given as
URL or ID=URL. Prefixes are compared in blocks of tokens as the model's tokenizer makes them;
--bytes compares the text itself, for replicas that serve another model.`,
		Example: `  tailor route --replica http://127.0.0.1:8081 --replica http://127.0.0.1:8082
  tailor route --replica a=http://10.0.0.1:8000 --replica b=http://10.0.0.2:8000 --bytes`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(replicas) == 0 {
				return misuse(cmd, "--replica: name at least one replica by its URL")
			}
			if blockSize < 1 || blockSize > 256 {
				return misuse(cmd, "--block-size %d: must be 1 to 256", blockSize)
			}
			if kvBlocks < 1 {
				return misuse(cmd, "--kv-blocks %d: must be at least 1", kvBlocks)
			}
			log, err := newLogger(cmd)
			if err != nil {
				return err
			}
			p, err := policy.New(chosen, policy.DefaultOptions())
			if err != nil {
				return err
			}
			cfg := router.Config{Policy: p, BlockTokens: blockSize, IndexBlocks: kvBlocks, Log: log}
			for i, text := range replicas {
				cfg.Replicas = append(cfg.Replicas, parseReplica(i, text))
			}
			if !bytesOnly {
				folder, err := openFolder(model)
				if err != nil {
					return err
				}
				tok, err := tokenizer.Load(folder.FS())
				if err != nil {
					return err
				}
				cfg.Tokenize = func(text string) ([]int32, error) { return tok.Encode(text, false) }
			}
			group, ctx := errgroup.WithContext(cmd.Context())
			_, url, err := startRouter(ctx, group, cfg, listen, func() {})
			if err != nil {
				return stopGroup(group, err)
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "tailor %s routes on %s over %s, policy %s\n\n", version(), url, plural(len(cfg.Replicas), "replica"), chosen)
			for _, r := range cfg.Replicas {
				fmt.Fprintf(out, "  %-6s  %s\n", r.ID, r.URL)
			}
			fmt.Fprintf(out, "\nWho is ready:\n\n  curl -s %s/health\n\n", url)
			return group.Wait()
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&listen, "listen", "127.0.0.1:8080", "address to route on (port 0: any free one)")
	flags.StringArrayVar(&replicas, "replica", nil, "URL or ID=URL of a replica; give it once for each")
	addPolicyFlag(cmd, &chosen)
	flags.StringVar(&model, "model", "", "folder whose tokenizer the replicas use (default: the bundled model's)")
	flags.BoolVar(&bytesOnly, "bytes", false, "compare prefixes as bytes of text, without a tokenizer")
	flags.IntVar(&blockSize, "block-size", 16, "tokens in a replica's KV block, 1 to 256")
	flags.IntVar(&kvBlocks, "kv-blocks", 1024, "KV blocks in a replica's pool: what the router expects it to remember")
	return cmd
}

// parseReplica reads URL or ID=URL; a replica without a name is called by its position.
func parseReplica(position int, text string) router.Replica {
	if id, url, named := strings.Cut(text, "="); named && !strings.Contains(id, "/") {
		return router.Replica{ID: id, URL: url}
	}
	return router.Replica{ID: fmt.Sprintf("r%d", position), URL: text}
}
