package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"tailor/server"
	"tailor/weights"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// certificate is one for 127.0.0.1 that vouches for itself.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		write(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
}

func TestAccessFlags(t *testing.T) {
	keys := write(t, "keys", "# ours\nalice:k1\nk2\n")
	none := write(t, "none", "# nobody\n")
	cert, key := certificate(t)
	for name, tt := range map[string]struct {
		flags accessFlags
		says  string // "": fine
	}{
		"nothing":          {accessFlags{}, ""},
		"keys":             {accessFlags{apiKeys: []string{"bob:k3"}, apiKeyFile: keys, isolateKeys: true, requestsPerMinute: 5}, ""},
		"origins":          {accessFlags{allowedOrigins: []string{"*", "https://a.example:8080"}}, ""},
		"TLS":              {accessFlags{tlsCert: cert, tlsKey: key}, ""},
		"no such file":     {accessFlags{apiKeyFile: "/nowhere/keys"}, "--api-key-file"},
		"empty file":       {accessFlags{apiKeyFile: none}, "there is no key in it"},
		"bad key":          {accessFlags{apiKeys: []string{"a b"}}, "line 1"},
		"isolated nobody":  {accessFlags{isolateKeys: true}, "--api-key"},
		"negative limit":   {accessFlags{requestsPerMinute: -1}, "--requests-per-minute -1"},
		"half of TLS":      {accessFlags{tlsCert: cert}, "--tls-key"},
		"TLS upside down":  {accessFlags{tlsCert: key, tlsKey: cert}, "--tls-cert"},
		"origin with path": {accessFlags{allowedOrigins: []string{"https://a.example/"}}, "--allow-origin"},
		"origin no scheme": {accessFlags{allowedOrigins: []string{"a.example"}}, "--allow-origin"},
	} {
		err := tt.flags.validate(&cobra.Command{})
		if tt.says == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "a b") {
			t.Errorf("%s: %v; want %q", name, err, tt.says)
		}
	}
	f := accessFlags{apiKeys: []string{"bob:k3"}, apiKeyFile: keys}
	if err := f.validate(&cobra.Command{}); err != nil || len(f.keys) != 3 || f.keys[0] != (server.Key{Name: "bob", Secret: "k3"}) {
		t.Fatalf("%v, %v", f.keys, err)
	}
	if key := f.addRouterKey(); len(key) < 20 || len(f.keys) != 4 || f.keys[3] != (server.Key{Name: server.Operator, Secret: key}) {
		t.Errorf("the router's key is %q of %d", key, len(f.keys))
	}
	if key := new(accessFlags).addRouterKey(); key != "" {
		t.Error("a key where there are none locks everybody out")
	}
}

func TestSecure(t *testing.T) {
	f := accessFlags{}
	f.tlsCert, f.tlsKey = certificate(t)
	if err := f.validate(&cobra.Command{}); err != nil {
		t.Fatal(err)
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener, scheme := secure(plain, f.tls)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hi") })}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(listener) }()
	roots := x509.NewCertPool()
	text, err := os.ReadFile(f.tlsCert)
	if err != nil || !roots.AppendCertsFromPEM(text) {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	res, err := client.Get(scheme + "://" + listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(res.Body); err != nil || string(body) != "hi" || res.TLS.Version < tls.VersionTLS12 {
		t.Errorf("%q, %v", body, err)
	}
	_ = res.Body.Close()
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	<-done
	if same, scheme := secure(plain, nil); same != plain || scheme != "http" {
		t.Errorf("without a certificate: %v, %s", same, scheme)
	}
}

func TestChatTemplateFlag(t *testing.T) {
	c := &checkpoint{name: "x", files: weights.Bundled().FS()}
	for flag, want := range map[string]bool{"": true, "none": false, write(t, "t.jinja", "{{ eos_token }}"): true} {
		f := accessFlags{chatTemplate: flag}
		if template, err := f.template(c); err != nil || (template != nil) != want {
			t.Errorf("%q: %v, %v", flag, template, err)
		}
	}
	for _, flag := range []string{"/nowhere", write(t, "bad.jinja", "{% if %}")} {
		f := accessFlags{chatTemplate: flag}
		if _, err := f.template(c); err == nil {
			t.Errorf("%q is accepted", flag)
		}
	}
}
