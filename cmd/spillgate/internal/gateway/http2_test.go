package gateway_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
)

// certified is a certificate for the host x, made once.
var certified = sync.OnceValues(func() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, DNSNames: []string{"x"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
})

// overTLS has the gateway speak TLS.
func overTLS(t testing.TB) func(*gateway.Config) {
	t.Helper()
	cert, err := certified()
	if err != nil {
		t.Fatal(err)
	}
	return func(c *gateway.Config) { c.TLS = &tls.Config{Certificates: []tls.Certificate{cert}} }
}

// encrypted opens a connection of TLS from an address, that speaks one protocol.
func encrypted(t testing.TB, from, to, protocol string) *tls.Conn {
	t.Helper()
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	// Nobody but the gateway of this test listens there.
	c, err := tls.DialWithDialer(d, "tcp", to, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if got := c.ConnectionState().NegotiatedProtocol; got != protocol {
		t.Fatalf("the gateway speaks %q, want %q", got, protocol)
	}
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// A wire is a connection of HTTP/2 on which a test may write what no client
// would.
type wire struct {
	*http2.Framer
	t    testing.TB
	conn net.Conn
	next uint32 // stream

	packed   bytes.Buffer
	packer   *hpack.Encoder
	unpacker *hpack.Decoder

	status map[uint32]int  // of answers
	ended  map[uint32]bool // streams; 0 is a ping
	last   uint32          // that the gateway still answers, once it said so
	over   bool            // the connection is

	connects bool                    // the gateway takes an extended CONNECT
	trailer  func(hpack.HeaderField) // is shown the fields that end a stream; may be nil
}

func dial2(t testing.TB, from, to string, settings ...http2.Setting) *wire {
	t.Helper()
	return wireOn(t, encrypted(t, from, to, "h2"), settings...)
}

// dialH2C is dial2 without TLS.
func dialH2C(t testing.TB, from, to string, settings ...http2.Setting) *wire {
	t.Helper()
	return wireOn(t, rawFrom(t, from, to, ""), settings...)
}

func wireOn(t testing.TB, c net.Conn, settings ...http2.Setting) *wire {
	t.Helper()
	w := &wire{t: t, conn: c, next: 1, status: map[uint32]int{}, ended: map[uint32]bool{}}
	w.packer, w.unpacker = hpack.NewEncoder(&w.packed), hpack.NewDecoder(4096, nil)
	w.Framer = http2.NewFramer(c, c)
	w.AllowIllegalWrites, w.AllowIllegalReads = true, true
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	return w
}

// pack packs fields, names and values in turn.
func (w *wire) pack(fields ...string) []byte {
	w.packed.Reset()
	for i := 0; i+1 < len(fields); i += 2 {
		_ = w.packer.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // to memory
	}
	return bytes.Clone(w.packed.Bytes())
}

// stream returns the number of a new stream.
func (w *wire) stream() uint32 {
	w.next += 2
	return w.next - 2
}

// ask sends a request without a body and returns its stream. That the gateway
// hangs up is seen by who reads.
func (w *wire) ask(fields ...string) uint32 {
	id := w.stream()
	_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.pack(fields...), EndHeaders: true, EndStream: true})
	return id
}

// An outcome is how streams ended: by the status of their answer, 0 for one that
// was reset. over tells that the connection takes no more.
type outcome struct {
	status map[uint32]int
	over   bool
}

// await reads until these streams have ended, or the connection has. Stream 0
// stands for the answer to a ping.
func (w *wire) await(ids ...uint32) outcome {
	w.t.Helper()
	out := outcome{status: map[uint32]int{}}
	for _, id := range ids {
		for !w.ended[id] && !w.over {
			w.read(id)
		}
		if status, ok := w.status[id]; ok {
			out.status[id] = status
		}
	}
	out.over = w.over || w.last > 0
	return out
}

// read reads a frame, and notes what it says. That a stream which is awaited is
// none of those that the gateway still answers ends the connection.
func (w *wire) read(awaited uint32) {
	w.t.Helper()
	f, err := w.ReadFrame()
	if err != nil {
		w.over = true
		return
	}
	id := f.Header().StreamID
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			_, w.connects = f.Value(http2.SettingEnableConnectProtocol)
			_ = w.WriteSettingsAck()
		}
	case *http2.PingFrame:
		w.ended[0] = w.ended[0] || f.IsAck()
		if !f.IsAck() {
			_ = w.WritePing(true, f.Data)
		}
	case *http2.HeadersFrame:
		w.unpacker.SetEmitFunc(func(hf hpack.HeaderField) {
			if n, err := strconv.Atoi(hf.Value); err == nil && hf.Name == ":status" && n >= 200 {
				w.status[id] = n
			}
			if w.status[id] > 0 && f.StreamEnded() && w.trailer != nil {
				w.trailer(hf)
			}
		})
		if _, err := w.unpacker.Write(f.HeaderBlockFragment()); err != nil {
			w.t.Fatal(err)
		}
		w.ended[id] = w.ended[id] || f.StreamEnded()
	case *http2.DataFrame:
		w.ended[id] = w.ended[id] || f.StreamEnded()
	case *http2.RSTStreamFrame:
		w.ended[id] = true
	case *http2.GoAwayFrame:
		w.last = max(1, f.LastStreamID)
		w.over = f.ErrCode != http2.ErrCodeNo || f.LastStreamID < awaited
	}
}
