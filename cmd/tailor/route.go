package main

import (
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"tailor/internal/openai"
	"tailor/model/tokenizer"
	"tailor/router"
	"tailor/router/policy"
	"tailor/server"
)

// routeFlags are the options of a router over replicas that run elsewhere.
type routeFlags struct {
	listen, model           string
	chosen                  string
	shadows                 []string
	replicas, dns           []string
	file                    string
	blockSize, kvBlocks     int
	bytesOnly, noEvents     bool
	isolateKeys             bool
	depth, retries          int
	hedge                   time.Duration
	healthInterval, timeout time.Duration
	ledger                  string
	adminToken, replicaKey  string // files
	anyModel                bool
	access                  accessFlags
	drain                   time.Duration
}

func newRoute() *cobra.Command {
	var f routeFlags
	cmd := &cobra.Command{
		Use:   "route --replica URL [--replica URL ...]",
		Short: "Route over running replicas",
		Long: `Route over running replicas, Tailor's or any that speak the OpenAI API. A replica is given as
URL or ID=URL, in a file with one on each line that is read again when it changes, or by a DNS
name: host:port, an address for each replica, or _service._proto.name, its SRV records.
A request goes to a replica that lists its model. Prefixes are compared in blocks of tokens as
the model's tokenizer and chat template make them; --bytes compares the text itself, for
replicas that serve another model. What Tailor's replicas hold is known
from their own events; of others it is guessed. Several routers need nothing of each other.`,
		Example: `  tailor route --replica http://127.0.0.1:8081 --replica http://127.0.0.1:8082
  tailor route --replica a=http://10.0.0.1:8000 --replica b=http://10.0.0.2:8000 --bytes
  tailor route --replicas-dns _http._tcp.tailor-replicas --shadow random,consistent_hash`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.config(cmd)
			if err != nil {
				return err
			}
			if f.ledger != "" {
				file, err := os.OpenFile(f.ledger, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
				if err != nil {
					return err
				}
				defer file.Close()
				cfg.LedgerFile = file
			}
			group, ctx := errgroup.WithContext(cmd.Context())
			_, url, err := startRouter(ctx, group, cfg, f.listen, f.access.tls, f.drain, func() {})
			if err != nil {
				return stopGroup(group, err)
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "tailor %s routes on %s over %s, policy %s\n\n", version(), url, plural(len(cfg.Replicas), "replica"), f.chosen)
			for _, r := range cfg.Replicas {
				fmt.Fprintf(out, "  %-6s  %s\n", r.ID, r.URL)
			}
			for _, s := range cfg.Sources {
				fmt.Fprintf(out, "  and those of %s\n", s.Name())
			}
			fmt.Fprintf(out, "\nWho is ready:\n\n  curl -s %s/health\n\n", url)
			return group.Wait()
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8080", "address to route on (port 0: any free one)")
	flags.StringArrayVar(&f.replicas, "replica", nil, "URL or ID=URL of a replica; give it once for each")
	flags.StringVar(&f.file, "replicas-file", "", "file with a replica on each line, URL or ID=URL; # begins a remark; read again when it changes")
	flags.StringArrayVar(&f.dns, "replicas-dns", nil, "DNS name of replicas that come and go: host:port or _service._proto.name")
	addPolicyFlag(cmd, &f.chosen)
	flags.IntVar(&f.depth, "prefix-depth", 0, "blocks of the prefix that the hash policies look at; 0: as many as tell the traffic's prefixes apart")
	flags.StringSliceVar(&f.shadows, "shadow", nil, "policies, separated by commas, that choose for the same requests without effect; see /metrics")
	flags.StringVar(&f.model, "model", "", "folder whose tokenizer the replicas use (default: the bundled model's)")
	flags.BoolVar(&f.anyModel, "any-model", false, "send requests to any replica whatever model they name, for servers that do not heed the name")
	flags.BoolVar(&f.bytesOnly, "bytes", false, "compare prefixes as bytes of text, without a tokenizer")
	flags.BoolVar(&f.noEvents, "no-events", false, "guess what replicas hold even where they would tell")
	flags.IntVar(&f.blockSize, "block-size", 16, "tokens in a replica's KV block, 1 to 256")
	flags.IntVar(&f.kvBlocks, "kv-blocks", 1024, "KV blocks in a replica's pool: what the router expects one to remember that does not tell")
	flags.BoolVar(&f.isolateKeys, "isolate-keys", false, "keep each API key's prefixes apart, as replicas started with this flag do")
	flags.StringVar(&f.replicaKey, "replica-key-file", "", "file with the API key with which replicas are asked what they hold")
	flags.StringVar(&f.adminToken, "admin-token-file", "", "file with the token that lets POST and DELETE on /v1/replicas change who is routed to (default: nobody may)")
	flags.StringVar(&f.ledger, "ledger", "", "file to which every request's row is appended as a line of JSON")
	flags.IntVar(&f.retries, "retries", 2, "other replicas to try, before the first byte, after one has failed")
	flags.DurationVar(&f.hedge, "hedge", 0, "how long an answer may take to begin before a second replica is asked too; 0: never")
	flags.DurationVar(&f.healthInterval, "health-interval", time.Second, "time between two health checks of a replica")
	flags.DurationVar(&f.timeout, "health-timeout", 5*time.Second, "how long a health check may take; three failures put a replica down")
	addDrainFlag(cmd, &f.drain)
	f.access.addDoor(cmd)
	return cmd
}

// config checks the flags and makes of them what a router needs.
func (f *routeFlags) config(cmd *cobra.Command) (router.Config, error) {
	var cfg router.Config
	fail := func(format string, args ...any) (router.Config, error) { return cfg, misuse(cmd, format, args...) }
	switch {
	case len(f.replicas) == 0 && f.file == "" && len(f.dns) == 0:
		return fail("--replica: name at least one replica by its URL, or use --replicas-file or --replicas-dns")
	case f.blockSize < 1 || f.blockSize > 256:
		return fail("--block-size %d: must be 1 to 256", f.blockSize)
	case f.kvBlocks < 1:
		return fail("--kv-blocks %d: must be at least 1", f.kvBlocks)
	case f.depth < 0:
		return fail("--prefix-depth %d: must be at least 0", f.depth)
	case f.retries < 0:
		return fail("--retries %d: must be at least 0", f.retries)
	case f.hedge < 0:
		return fail("--hedge %v: must be at least 0", f.hedge)
	case f.healthInterval <= 0 || f.timeout <= 0:
		return fail("--health-interval %v, --health-timeout %v: must be more than 0", f.healthInterval, f.timeout)
	}
	if err := f.access.validate(cmd); err != nil {
		return cfg, err
	}
	log, err := newLogger(cmd)
	if err != nil {
		return cfg, err
	}
	cfg = router.Config{
		Keys: f.access.routerKeys(), AllowedOrigins: f.access.allowedOrigins, AnyModel: f.anyModel, Version: version(),
		BlockTokens: f.blockSize, IndexBlocks: f.kvBlocks, SaltByKey: f.isolateKeys, NoFollow: f.noEvents,
		Retries: f.retries, Hedge: f.hedge, Log: log,
		Health: router.Health{Interval: f.healthInterval, Timeout: f.timeout},
	}
	if f.retries == 0 {
		cfg.Retries = -1 // there 0 is the default
	}
	options := policy.DefaultOptions()
	options.Depth = f.depth
	if cfg.Policy, err = policy.New(f.chosen, options); err != nil {
		return cfg, err
	}
	for _, name := range f.shadows {
		p, err := policy.New(name, options)
		if err != nil {
			return fail("--shadow: %w", err)
		}
		cfg.Shadows = append(cfg.Shadows, p)
	}
	for i, text := range f.replicas {
		r := parseReplica(i, text)
		if err := r.Validate(); err != nil {
			return fail("--replica %s: %w", text, err)
		}
		cfg.Replicas = append(cfg.Replicas, r)
	}
	if f.file != "" {
		cfg.Sources = append(cfg.Sources, router.FileSource{Path: f.file})
	}
	for _, target := range f.dns {
		s := router.DNSSource{Resolver: net.DefaultResolver, Target: target}
		if err := s.Validate(); err != nil {
			return fail("--replicas-dns: %w", err)
		}
		cfg.Sources = append(cfg.Sources, s)
	}
	if cfg.AdminToken, err = secretFile(cmd, "--admin-token-file", f.adminToken); err != nil {
		return cfg, err
	}
	if cfg.ReplicaKey, err = secretFile(cmd, "--replica-key-file", f.replicaKey); err != nil {
		return cfg, err
	}
	if !f.bytesOnly {
		folder, err := openFolder(f.model)
		if err != nil {
			return cfg, err
		}
		tok, err := tokenizer.Load(folder.FS())
		if err != nil {
			return cfg, err
		}
		template, err := f.access.template(&checkpoint{name: folder.Name(), files: folder.FS()})
		if err != nil {
			return cfg, err
		}
		cfg.Tokenize, cfg.TokenizeChat = tokenize(tok), tokenizeChat(template, tok)
	}
	return cfg, nil
}

// tokenize makes tokens of the prompts of completions, as a replica does.
func tokenize(tok *tokenizer.Tokenizer) func(string) ([]int32, error) {
	return func(text string) ([]int32, error) { return tok.Encode(text, false) }
}

// maxChatText bounds the text of a conversation that a router tokenizes. More than fits into
// any context that there is, replicas refuse.
const maxChatText = 512 << 10

// tokenizeChat makes tokens of the body of a chat request, as a replica does; nil where the
// model has no template. Where a replica is to find out what fits, all is taken to fit.
func tokenizeChat(template *server.ChatTemplate, tok *tokenizer.Tokenizer) func([]byte) ([]int32, error) {
	if template == nil {
		return nil
	}
	encoder := server.NewChatEncoder(template, tok)
	return func(body []byte) ([]int32, error) {
		req, err := openai.ParseChat(body)
		if err != nil {
			return nil, err
		}
		tokens, err := encoder.Tokens(req, maxChatText)
		if keep := openai.Or(req.TruncatePrompt, 0); err == nil && keep > 0 {
			tokens = tokens[max(0, len(tokens)-keep):]
		}
		return tokens, err
	}
}

// secretFile reads a file that holds one secret; no file is no secret.
func secretFile(cmd *cobra.Command, flag, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", misuse(cmd, "%s: %v", flag, err)
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", misuse(cmd, "%s %s: there is nothing in it", flag, path)
	}
	return secret, nil
}

// parseReplica reads URL or ID=URL; a replica without a name is called by its position.
func parseReplica(position int, text string) router.Replica {
	if id, url, named := strings.Cut(text, "="); named && !strings.Contains(id, "/") {
		return router.Replica{ID: id, URL: url}
	}
	return router.Replica{ID: fmt.Sprintf("r%d", position), URL: text}
}
