package main

import (
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tailor/router"
	"tailor/server"
)

// accessFlags say who may use a replica or a router, and how it is reached.
type accessFlags struct {
	apiKeys           []string
	apiKeyFile        string
	isolateKeys       bool
	requestsPerMinute int
	allowedOrigins    []string
	tlsCert, tlsKey   string
	chatTemplate      string

	keys []server.Key // what the flags add up to, once validated
	tls  *tls.Config  // nil: none
}

// add defines the flags of a replica.
func (f *accessFlags) add(cmd *cobra.Command) {
	f.addDoor(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.isolateKeys, "isolate-keys", false, "keep each key from reusing, and from noticing, what others have had computed")
	flags.IntVar(&f.requestsPerMinute, "requests-per-minute", 0, "requests that a key, or an address where there are no keys, may send to a replica; 0: any number")
}

// addDoor defines those that a router has too.
func (f *accessFlags) addDoor(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.apiKeys, "api-key", nil, "let in only who sends this key, KEY or NAME:KEY; may be given several times (others on this machine can see it: better a file)")
	flags.StringVar(&f.apiKeyFile, "api-key-file", "", "file with a key on each line, KEY or NAME:KEY; # begins a remark")
	flags.StringArrayVar(&f.allowedOrigins, "allow-origin", nil, "let browsers in from pages of this origin, such as https://example.org, or * for all; may be given several times")
	flags.StringVar(&f.tlsCert, "tls-cert", "", "file with the certificate to serve HTTPS with, and those that vouch for it")
	flags.StringVar(&f.tlsKey, "tls-key", "", "file with the certificate's key")
	flags.StringVar(&f.chatTemplate, "chat-template", "", "file with the Jinja template that makes a prompt of a chat, or none (default: the model's own)")
}

// validate reads the files. It says what to do about what it finds.
func (f *accessFlags) validate(cmd *cobra.Command) error {
	lines := strings.Join(f.apiKeys, "\n")
	if f.apiKeyFile != "" {
		text, err := os.ReadFile(f.apiKeyFile)
		if err != nil {
			return misuse(cmd, "--api-key-file: %v", err)
		}
		lines += "\n" + string(text)
	}
	var err error
	if f.keys, err = server.ParseKeys(lines); err != nil {
		return misuse(cmd, "--api-key or --api-key-file: %v", err)
	}
	switch {
	case len(f.keys) == 0 && (f.apiKeyFile != "" || len(f.apiKeys) > 0):
		return misuse(cmd, "--api-key-file %s: there is no key in it, and without keys everybody would be let in", f.apiKeyFile)
	case f.isolateKeys && len(f.keys) == 0:
		return misuse(cmd, "--isolate-keys: there are no keys to keep apart; give --api-key or --api-key-file")
	case f.requestsPerMinute < 0:
		return misuse(cmd, "--requests-per-minute %d: must be 0 or more", f.requestsPerMinute)
	case (f.tlsCert == "") != (f.tlsKey == ""):
		return misuse(cmd, "--tls-cert and --tls-key: one does nothing without the other")
	}
	for _, origin := range f.allowedOrigins {
		if origin != "*" && !strings.Contains(origin, "://") || strings.HasSuffix(origin, "/") {
			return misuse(cmd, "--allow-origin %q: must be * or like https://example.org, without a path", origin)
		}
	}
	if f.tlsCert != "" {
		pair, err := tls.LoadX509KeyPair(f.tlsCert, f.tlsKey)
		if err != nil {
			return misuse(cmd, "--tls-cert, --tls-key: %v", err)
		}
		f.tls = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	return nil
}

// addRouterKey lets a router of the same process in, where keys are needed: it asks the
// replicas what they hold. Nobody else ever sees the key.
func (f *accessFlags) addRouterKey() string {
	if len(f.keys) == 0 {
		return ""
	}
	secret := rand.Text()
	f.keys = append(slices.Clone(f.keys), server.Key{Name: server.Operator, Secret: secret})
	return secret
}

// routerKeys are the keys as a router takes them.
func (f *accessFlags) routerKeys() []router.Key {
	var keys []router.Key
	for _, k := range f.keys {
		keys = append(keys, router.Key{Name: k.Name, Secret: k.Secret})
	}
	return keys
}

// template is the checkpoint's chat template or the one that the flags name; nil: none.
func (f *accessFlags) template(c *checkpoint) (*server.ChatTemplate, error) {
	switch f.chatTemplate {
	case "":
		template, err := server.LoadChatTemplate(c.files)
		if err != nil {
			return nil, fmt.Errorf("%s: %w; --chat-template none serves it without", c.name, err)
		}
		return template, nil
	case "none":
		return nil, nil
	}
	text, err := os.ReadFile(f.chatTemplate)
	if err != nil {
		return nil, fmt.Errorf("--chat-template: %w", err)
	}
	tokens, err := server.SpecialTokens(c.files)
	if err != nil {
		return nil, err
	}
	return server.NewChatTemplate(string(text), tokens)
}

// secure makes what is said on the listener private, where there is a certificate, and
// returns its scheme.
func secure(listener net.Listener, with *tls.Config) (net.Listener, string) {
	if with == nil {
		return listener, "http"
	}
	return tls.NewListener(listener, with), "https"
}
