package httplimit_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/httplimit"
)

// Frames of HTTP/2 (RFC 9113, 6).
const (
	dataFrame, headersFrame, resetFrame, settingsFrame = 0, 1, 3, 4
	endStream, endHeaders                              = 1, 4
)

func frame(kind, flags byte, stream uint32, payload string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	b = binary.BigEndian.AppendUint32(append(b, flags), stream)
	return string(b) + payload
}

// field is one of a header, as a literal that no table is for (RFC 7541, 6.2.2).
func field(name, value string) string {
	return "\x00" + string(rune(len(name))) + name + string(rune(len(value))) + value
}

// A piece is what a client of HTTP/2 sends at a time.
type piece struct {
	after time.Duration
	bytes string
}

// talk2 has h serve a client who sends those pieces on stream 1, and returns
// which frames came on it, and when.
func talk2(t *testing.T, h http.Handler, pieces ...piece) (log []string) {
	client, server := net.Pipe()
	conns := make(chan net.Conn, 1)
	conns <- server
	srv := &http.Server{Handler: h, Protocols: new(http.Protocols), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	srv.Protocols.SetUnencryptedHTTP2(true)
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(one{conns}) }()
	start, read := time.Now(), make(chan struct{})
	go func() {
		defer close(read)
		var head [9]byte
		for {
			if _, err := io.ReadFull(client, head[:]); err != nil {
				return
			}
			payload := make([]byte, binary.BigEndian.Uint32(head[:])>>8)
			if _, err := io.ReadFull(client, payload); err != nil {
				return
			}
			if binary.BigEndian.Uint32(head[5:]) != 1 {
				continue
			}
			what := ""
			switch kind, flags := head[3], head[4]; {
			case kind == headersFrame:
				what = "header"
			case kind == dataFrame && len(payload) > 0:
				what = "body"
			case kind == resetFrame:
				what = fmt.Sprintf("reset %d", binary.BigEndian.Uint32(payload))
			case kind != dataFrame:
				continue
			case flags&endStream != 0:
				what = "end"
			}
			if head[4]&endStream != 0 && head[3] != resetFrame && what != "end" {
				what += ", end"
			}
			log = append(log, fmt.Sprintf("%s at %s", what, time.Since(start)))
		}
	}()
	if _, err := io.WriteString(client, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+frame(settingsFrame, 0, 0, "")); err != nil {
		t.Fatal(err)
	}
	for _, p := range pieces {
		<-time.After(p.after)
		if _, err := io.WriteString(client, p.bytes); err != nil {
			t.Fatal(err)
		}
	}
	<-time.After(time.Second)
	client.Close()
	close(conns)
	srv.Close()
	<-served
	<-read
	return log
}

// Over HTTP/2 an answer is not followed at once by the reset of a stream whose
// body is under way, and by none if that ends in time.
func TestLingerOverHTTP2(t *testing.T) {
	head := func(fields ...string) string {
		block := field(":method", "POST") + field(":scheme", "http") + field(":path", "/") + field(":authority", "x")
		return frame(headersFrame, endHeaders, 1, block+strings.Join(fields, ""))
	}
	data := func(n int) (all string) {
		for ; n > 0; n -= 16 << 10 {
			all += frame(dataFrame, 0, 1, strings.Repeat("x", min(n, 16<<10)))
		}
		return all
	}
	const ends = 50 * time.Millisecond
	for _, c := range []struct {
		what   string
		pieces []piece
		want   []string
	}{
		{"silence", []piece{{0, head()}, {0, data(100)}}, []string{"header at 0s", "body at 0s", "end at 100ms", "reset 0 at 100ms"}},
		{"a large body", []piece{{0, head()}, {0, data(600 << 10)}}, []string{"header at 0s", "body at 0s", "end at 100ms", "reset 0 at 100ms"}},
		{"a body that ends", []piece{{0, head()}, {0, data(100)}, {ends, frame(dataFrame, endStream, 1, "x")}}, []string{"header at 0s", "body at 0s", "end at 50ms"}},
		{"a whole body", []piece{{0, head() + frame(dataFrame, endStream, 1, "x")}}, []string{"header at 0s", "body at 0s", "end at 0s"}},
		{"no body", []piece{{0, strings.Replace(head(), "\x01\x04", "\x01\x05", 1)}}, []string{"header at 0s", "body, end at 0s"}},
		{"a client that leaves", []piece{{0, head()}, {ends, frame(resetFrame, 0, 1, "\x00\x00\x00\x08")}}, []string{"header at 0s", "body at 0s"}},
		{"waits to be told to continue", []piece{{0, head(field("expect", "100-continue"))}}, []string{"header at 0s", "body at 0s", "end at 100ms", "reset 0 at 100ms"}}, // it hears no more than the answer
		{"a call of gRPC", []piece{{0, head(field("content-type", "application/grpc"))}}, []string{"header, end at 0s", "reset 0 at 0s"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				refusing := httplimit.New(spillgate.Must("1/h burst 1"), httplimit.Cost("requests", func(*http.Request) int64 { return 2 }))
				h := refusing(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") }))
				if got := talk2(t, h, c.pieces...); !slices.Equal(got, c.want) {
					t.Errorf("came %q, want %q", got, c.want)
				}
			})
		})
	}
}
