package ec2sim

import (
	"encoding/json"
	"strings"
)

func (s *Server) getParameter(r *request) ([]byte, *apiError) {
	var in struct{ Name string }
	if err := json.Unmarshal(r.json, &in); err != nil || in.Name == "" {
		return nil, badRequest("ValidationException", "The parameter Name is missing or is no text")
	}
	name := in.Name
	if strings.HasPrefix(name, "arn:") {
		_, path, ok := strings.Cut(name, ":parameter/")
		if !ok {
			return nil, badRequest("ValidationException", "%s is not the ARN of a parameter", clip(name))
		}
		name = "/" + path
	}
	value, ok := s.images.parameter(name)
	if !ok { // a hierarchy of one level may be written without the slash
		value, ok = s.images.parameter(strings.TrimPrefix(name, "/"))
	}
	if !ok {
		return nil, badRequest("ParameterNotFound", "Parameter %s not found.", clip(in.Name))
	}
	return marshal(map[string]any{"Parameter": map[string]any{
		"Name": name, "Type": "String", "Value": value, "Version": 1, "DataType": "text",
		"ARN":              s.arn("ssm", "parameter"+name),
		"LastModifiedDate": float64(s.started.UnixMilli()) / 1000,
	}}), nil
}
