package e2e

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var slowClients = flag.Int("slow", 0, "clients of a byte a second in TestSlowClients; 0 skips it")

// Clients that send or read a byte a second hold a connection each, and nothing that others
// need: 8 normal clients beside them get their tokens nearly as fast as alone, and memory
// stays bounded. The measurement begins when the slow readers' answers are computed, since
// before it is their work that the others wait for, not their slowness.
func TestSlowClients(t *testing.T) {
	if *slowClients == 0 {
		t.Skip("takes minutes: make slow")
	}
	p := startProgram(t, "serve", "--max-waiting", "4096", "--kv-blocks", "4096")
	base, err := url.Parse(p.url)
	if err != nil {
		t.Fatal(err)
	}
	normal(t, p.url) // warms up
	alone := quickest(t, p.url)
	before := residentMiB(t, p.pid)

	ctx, cancel := context.WithCancel(t.Context())
	var slow sync.WaitGroup
	var connected, bytes atomic.Int64
	for i := range *slowClients {
		slow.Go(func() { slowClient(ctx, base.Host, i, &connected, &bytes) })
	}
	defer slow.Wait()
	defer cancel()
	for connected.Load() < int64(*slowClients) || running(ctx, t, p.url)+waiting(ctx, t, p.url) > 0 {
		if t.Context().Err() != nil {
			t.Fatal("the slow clients do not get in")
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	beside := quickest(t, p.url)
	after := residentMiB(t, p.pid)
	t.Logf("%d slow clients (%d bytes so far): %v a token alone, %v beside them (%.2f times); memory %d MiB, then %d MiB",
		*slowClients, bytes.Load(), alone, beside, float64(beside)/float64(alone), before, after)
	if float64(beside) > 1.3*float64(alone) {
		t.Errorf("%v a token alone, %v beside the slow clients", alone, beside)
	}
	if grown, allowed := after-before, 64+*slowClients/8; grown > allowed { // 128 KiB each
		t.Errorf("memory has grown by %d MiB, more than %d", grown, allowed)
	}
}

// slowClient sends its request, or reads the answer, a byte at a time.
func slowClient(ctx context.Context, host string, i int, connected, bytes *atomic.Int64) {
	conn, err := net.Dial("tcp", host)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_ = conn.(*net.TCPConn).SetReadBuffer(1024)
	body := fmt.Sprintf(`{"model":"tailor-4m","prompt":"client %d","max_tokens":16,"stream":true,"logprobs":5,"ignore_eos":true}`, i%50)
	request := fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", apiKey, len(body), body)
	sends := i%2 == 0
	if !sends {
		if _, err := io.WriteString(conn, request); err != nil {
			return
		}
	}
	connected.Add(1)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	one := make([]byte, 1)
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if sends {
			_, err = io.WriteString(conn, request[n%len(request):n%len(request)+1])
		} else {
			_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
			_, err = conn.Read(one)
		}
		if err != nil {
			// Cut for its slowness: it comes again, as such clients do.
			_ = conn.Close()
			if conn, err = net.Dial("tcp", host); err != nil {
				return
			}
			n = 0
			sends = true
		}
		bytes.Add(1)
	}
}

// quickest is the best of three runs: what else the machine does only slows them.
func quickest(t *testing.T, base string) time.Duration {
	t.Helper()
	return min(normal(t, base), normal(t, base), normal(t, base))
}

// normal is the mean time a token of 8 clients that stream at once.
func normal(t *testing.T, base string) time.Duration {
	t.Helper()
	var all sync.WaitGroup
	var total, tokens atomic.Int64
	for i := range 8 {
		all.Go(func() {
			body := fmt.Sprintf(`{"model":"tailor-4m","prompt":"a normal client, number %d","max_tokens":400,"seed":1,"stream":true,"ignore_eos":true}`, i)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/v1/completions", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Authorization", "Bearer "+apiKey)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = res.Body.Close() }()
			var first, last time.Time
			n := 0
			lines := bufio.NewScanner(res.Body)
			for lines.Scan() {
				if strings.HasPrefix(lines.Text(), "data: {") {
					if last = time.Now(); n == 0 {
						first = last
					}
					n++
				}
			}
			if n < 100 {
				t.Errorf("client %d got %d chunks", i, n)
				return
			}
			total.Add(int64(last.Sub(first)))
			tokens.Add(int64(n - 1))
		})
	}
	all.Wait()
	if tokens.Load() == 0 {
		t.Fatal("the normal clients got nothing")
	}
	return time.Duration(total.Load() / tokens.Load())
}

func residentMiB(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skipf("memory is read from /proc: %v", err)
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmRSS:" {
			kib, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			return kib >> 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}
