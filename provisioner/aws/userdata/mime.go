package userdata

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"net/textproto"
	"slices"
	"strings"
)

// boundary is fixed so that the same parts give the same text.
const boundary = "//"

const (
	shellType      = `text/x-shellscript; charset="us-ascii"`
	nodeConfigType = "application/node.eks.aws"
)

// part is one piece of a multipart document. header has the lines beside Content-Type that are kept.
type part struct {
	contentType string
	header      textproto.MIMEHeader
	body        string
}

func isMIME(text string) bool {
	trimmed := strings.TrimSpace(text)
	return strings.HasPrefix(trimmed, "MIME-Version:") || strings.HasPrefix(trimmed, "Content-Type:")
}

// readMIME takes a multipart document apart.
func readMIME(text string) ([]part, error) {
	message, err := mail.ReadMessage(strings.NewReader(strings.TrimSpace(text) + "\n"))
	if err != nil {
		return nil, fmt.Errorf("parse MIME header of spec.userData: %w", err)
	}
	kind, params, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil {
		return nil, fmt.Errorf("parse Content-Type of spec.userData: %w", err)
	}
	if !strings.HasPrefix(kind, "multipart/") {
		return nil, fmt.Errorf("spec.userData is MIME of type %s, must be multipart/mixed", kind)
	}
	if params["boundary"] == "" {
		return nil, errors.New("spec.userData is MIME without a boundary")
	}
	var parts []part
	for reader := multipart.NewReader(message.Body, params["boundary"]); ; {
		p, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			return parts, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read part %d of spec.userData: %w", len(parts)+1, err)
		}
		body, err := io.ReadAll(p)
		if err != nil {
			return nil, fmt.Errorf("read part %d of spec.userData: %w", len(parts)+1, err)
		}
		kept := part{contentType: p.Header.Get("Content-Type"), header: p.Header, body: string(body)}
		kept.header.Del("Content-Type")
		parts = append(parts, kept)
	}
}

// writeMIME puts parts together, without carriage returns.
func writeMIME(parts []part) string {
	var b bytes.Buffer
	b.WriteString("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"" + boundary + "\"\n\n")
	for _, p := range parts {
		b.WriteString("--" + boundary + "\n")
		if p.contentType != "" {
			b.WriteString("Content-Type: " + p.contentType + "\n")
		}
		for _, key := range sortedHeader(p.header) {
			for _, value := range p.header[key] {
				b.WriteString(key + ": " + value + "\n")
			}
		}
		b.WriteString("\n" + p.body + "\n")
	}
	b.WriteString("--" + boundary + "--\n")
	return strings.ReplaceAll(b.String(), "\r", "")
}

func sortedHeader(h textproto.MIMEHeader) []string {
	keys := make([]string, 0, len(h))
	for key := range h {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
