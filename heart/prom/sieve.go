package prom

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"

	jsoniter "github.com/json-iterator/go"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// series is one time series of an answer.
type series struct {
	labels    labels
	points    []model.SamplePair // oldest first
	histogram bool               // holds histograms, not numbers
}

// sieve takes the series out of an answer as it arrives: the client above keeps
// an answer as a whole and several times over, which is tens of megabytes here.
// What is left it reads as ever: status, errors, warnings.
type sieve struct {
	next http.RoundTripper
	take func(series) // must copy what it keeps
}

// RoundTrip implements http.RoundTripper.
func (s *sieve) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.next.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	defer resp.Body.Close()
	rest, err := s.sift(resp.Body)
	if err != nil {
		return nil, err
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(rest)), int64(len(rest))
	return resp, nil
}

// sift reads an answer and gives it back without its series. An answer that is
// of another type than matrix is given back as it is.
func (s *sieve) sift(body io.Reader) ([]byte, error) {
	from := &watched{Reader: body}
	in := jsoniter.Parse(jsoniter.ConfigDefault, from, 64<<10)
	answer, data := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	in.ReadMapCB(func(_ *jsoniter.Iterator, field string) bool {
		if field != "data" {
			answer[field] = in.SkipAndReturnBytes()
			return in.Error == nil
		}
		ok := in.ReadMapCB(func(_ *jsoniter.Iterator, field string) bool {
			if field == "result" && string(bytes.TrimSpace(data["resultType"])) == `"matrix"` {
				data[field] = json.RawMessage("[]")
				return s.matrix(in)
			}
			data[field] = in.SkipAndReturnBytes()
			return in.Error == nil
		})
		answer[field], _ = json.Marshal(data)
		return ok
	})
	switch {
	case from.err != nil:
		return nil, from.err
	case in.Error != nil:
		return nil, &v1.Error{Type: v1.ErrBadResponse, Msg: in.Error.Error()}
	}
	if _, err := io.Copy(io.Discard, body); err != nil { // at its end the connection is free for the next query
		return nil, err
	}
	return json.Marshal(answer)
}

// watched keeps the error that reading ended in, if it was not the end.
type watched struct {
	io.Reader
	err error
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		w.err = err
	}
	return n, err
}

// matrix hands on the series of a result, one after the other in the same
// memory.
func (s *sieve) matrix(in *jsoniter.Iterator) bool {
	var one series
	field := func(_ *jsoniter.Iterator, name string) bool {
		switch name {
		case "metric":
			return in.ReadMapCB(func(_ *jsoniter.Iterator, name string) bool {
				one.labels = append(one.labels, label{name, in.ReadString()})
				return in.Error == nil
			})
		case "values":
			return in.ReadArrayCB(func(*jsoniter.Iterator) bool {
				one.points = append(one.points, readPoint(in))
				return in.Error == nil
			})
		}
		one.histogram = one.histogram || name == "histograms"
		in.Skip()
		return in.Error == nil
	}
	return in.ReadArrayCB(func(*jsoniter.Iterator) bool {
		one = series{labels: one.labels[:0], points: one.points[:0]}
		if !in.ReadMapCB(field) {
			return false
		}
		s.take(one)
		return true
	})
}

// readPoint reads a time in seconds and a value in quotes.
func readPoint(in *jsoniter.Iterator) (p model.SamplePair) {
	in.ReadArray()
	p.Timestamp = model.Time(math.Round(in.ReadFloat64() * 1000))
	in.ReadArray()
	value, err := strconv.ParseFloat(string(in.ReadStringAsSlice()), 64)
	if err != nil || in.ReadArray() {
		in.ReportError("readPoint", fmt.Sprintf("found %v, expected a time and a number in quotes", err))
	}
	p.Value = model.SampleValue(value)
	return p
}
