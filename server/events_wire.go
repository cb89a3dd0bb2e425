package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"strconv"

	"tailor/server/blocklog"
)

// The JSON of events and snapshots is written by hand: encoding/json takes ten times as
// long for what is mostly numbers, and a router reads it from every replica all day.

func appendEvent(b []byte, epoch string, e blocklog.Event) []byte {
	b = appendPosition(b, blocklog.Position{Epoch: epoch, Seq: e.Seq}, string(e.Kind))
	if e.Kind == blocklog.Stored {
		b = append(b, `,"salt":`...)
		b = appendText(b, e.Salt)
		b = append(b, `,"parent":`...)
		b = strconv.AppendInt(b, int64(e.Parent), 10)
	}
	if len(e.Blocks) > 0 {
		b = append(b, `,"blocks":[`...)
		size := len(e.Tokens) / len(e.Blocks) // 0 where there are none
		for i, id := range e.Blocks {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendID(b, int64(id))
			if size > 0 {
				b = appendTokens(b, e.Tokens[i*size:(i+1)*size])
			}
			b = append(b, '}')
		}
		b = append(b, ']')
	}
	return append(b, "}\n"...)
}

func appendHeartbeat(b []byte, h blocklog.Head) []byte {
	b = appendPosition(b, h.Position, "heartbeat")
	return fmt.Appendf(b, `,"digest":"%016x"}`+"\n", h.Digest)
}

func appendResync(b []byte, p blocklog.Position) []byte {
	return append(appendPosition(b, p, "resync"), "}\n"...)
}

// appendPosition begins a line of the stream.
func appendPosition(b []byte, p blocklog.Position, kind string) []byte {
	b = append(b, `{"epoch":`...)
	b = appendText(b, p.Epoch)
	b = append(b, `,"seq":`...)
	b = strconv.AppendUint(b, p.Seq, 10)
	b = append(b, `,"type":`...)
	return appendText(b, kind)
}

// writeSnapshot leaves errors to the last flush.
func writeSnapshot(out *bufio.Writer, model string, s *blocklog.Snapshot) error {
	b := append([]byte(nil), `{"epoch":`...)
	b = appendText(b, s.Epoch)
	b = fmt.Appendf(b, `,"seq":%d,"block_size":%d,"model":`, s.Seq, s.BlockSize)
	b = appendText(b, model)
	b = fmt.Appendf(b, `,"digest":"%016x","salts":[`, s.Digest)
	for i, salt := range s.Salts {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"salt":`...)
		b = appendText(b, salt.Salt)
		b = append(b, `,"blocks":[`...)
		for j, block := range salt.Blocks {
			if j > 0 {
				b = append(b, ',')
			}
			b = appendID(b, int64(block.ID))
			b = append(b, `,"parent":`...)
			b = strconv.AppendInt(b, int64(block.Parent), 10)
			b = append(appendTokens(b, block.Tokens), '}')
			if _, err := out.Write(b); err != nil {
				return err
			}
			b = b[:0]
		}
		b = append(b, "]}"...)
	}
	if _, err := out.Write(append(b, "]}\n"...)); err != nil {
		return err
	}
	return out.Flush()
}

func appendID(b []byte, id int64) []byte {
	return strconv.AppendInt(append(b, `{"id":`...), id, 10)
}

func appendTokens(b []byte, tokens []int32) []byte {
	b = append(b, `,"tokens":[`...)
	for i, token := range tokens {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(token), 10)
	}
	return append(b, ']')
}

func appendText(b []byte, text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic("server: a string that JSON cannot say: " + err.Error())
	}
	return append(b, quoted...)
}
