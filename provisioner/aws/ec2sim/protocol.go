package ec2sim

import (
	"encoding/json"
	"net/http"
)

// protocol writes replies in the form that a service's clients expect.
type protocol struct {
	success func(r *request, body []byte) reply
	failure func(r *request, bad *apiError) reply
}

const xmlHeader = `<?xml version="1.0" encoding="UTF-8"?>` + "\n"

var (
	ec2Protocol   = protocol{ec2Success, ec2Failure}
	queryProtocol = protocol{querySuccess, queryFailure}
	jsonProtocol  = protocol{jsonSuccess("application/x-amz-json-1.1"), jsonFailure("application/x-amz-json-1.1")}
	sqsProtocol   = protocol{jsonSuccess("application/x-amz-json-1.0"), jsonFailure("application/x-amz-json-1.0")}
	restProtocol  = protocol{jsonSuccess("application/json"), jsonFailure("application/json")}
	plainProtocol = protocol{plainSuccess, jsonFailure("application/json")}
)

func protocolOf(r *request) protocol {
	switch r.service {
	case "iam", "sts":
		return queryProtocol
	case "ssm", "pricing":
		return jsonProtocol
	case "sqs":
		return sqsProtocol
	case "eks":
		return restProtocol
	case "imds":
		return plainProtocol
	default:
		return ec2Protocol
	}
}

func ec2Success(r *request, body []byte) reply {
	w := xmlWriter{buf: make([]byte, 0, len(body)+256)}
	w.buf = append(w.buf, xmlHeader+"<"+r.action+`Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">`...)
	w.text("requestId", r.id)
	w.buf = append(w.buf, body...)
	w.close(r.action + "Response")
	return reply{body: w.buf, contentType: "text/xml;charset=UTF-8", status: http.StatusOK}
}

func ec2Failure(r *request, bad *apiError) reply {
	w := xmlWriter{buf: []byte(xmlHeader)}
	w.in("Response", func() {
		w.in("Errors", func() {
			w.in("Error", func() {
				w.text("Code", bad.code)
				w.text("Message", bad.message)
			})
		})
		w.text("RequestID", r.id)
	})
	return reply{body: w.buf, contentType: "text/xml;charset=UTF-8", status: bad.status}
}

var queryNamespace = map[string]string{
	"iam": "https://iam.amazonaws.com/doc/2010-05-08/",
	"sts": "https://sts.amazonaws.com/doc/2011-06-15/",
}

func querySuccess(r *request, body []byte) reply {
	w := xmlWriter{}
	w.buf = append(w.buf, "<"+r.action+`Response xmlns="`+queryNamespace[r.service]+`">`...)
	if body != nil {
		w.in(r.action+"Result", func() { w.buf = append(w.buf, body...) })
	}
	w.in("ResponseMetadata", func() { w.text("RequestId", r.id) })
	w.close(r.action + "Response")
	return reply{body: w.buf, contentType: "text/xml", status: http.StatusOK}
}

func queryFailure(r *request, bad *apiError) reply {
	w := xmlWriter{}
	w.buf = append(w.buf, `<ErrorResponse xmlns="`+queryNamespace[r.service]+`">`...)
	w.in("Error", func() {
		if bad.status < http.StatusInternalServerError {
			w.text("Type", "Sender")
		} else {
			w.text("Type", "Receiver")
		}
		w.text("Code", bad.code)
		w.text("Message", bad.message)
	})
	w.text("RequestId", r.id)
	w.close("ErrorResponse")
	return reply{body: w.buf, contentType: "text/xml", status: bad.status}
}

func jsonSuccess(contentType string) func(*request, []byte) reply {
	return func(_ *request, body []byte) reply {
		return reply{body: body, contentType: contentType, status: http.StatusOK}
	}
}

func jsonFailure(contentType string) func(*request, *apiError) reply {
	return func(_ *request, bad *apiError) reply {
		out := reply{
			body:        marshal(map[string]string{"__type": bad.code, "message": bad.message}),
			contentType: contentType,
			status:      bad.status,
			header:      map[string]string{"X-Amzn-Errortype": bad.code},
		}
		if bad.queryCode != "" {
			out.header["X-Amzn-Query-Error"] = bad.queryCode
		}
		return out
	}
}

func plainSuccess(r *request, body []byte) reply {
	out := reply{body: body, contentType: "text/plain", status: http.StatusOK}
	if r.action == "PutToken" {
		out.header = map[string]string{"X-Aws-Ec2-Metadata-Token-Ttl-Seconds": "21600"}
	}
	return out
}

// marshal encodes values that always can be: maps, structs and texts of ours.
func marshal(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		return []byte(`{"__type":"InternalFailure","message":"reply could not be encoded"}`)
	}
	return body
}
