#!/usr/bin/env escript
%%! -noinput +S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none
%% The Erlang query server: CouchDB's line protocol for design documents whose language is erlang.
%%
%% Functions are what CouchDB's native query server takes: one expression that gives a fun, with Emit, Log, Start, Send,
%% GetRow, FoldRows and DDoc bound. Documents are CouchDB's terms: {[{Name, Value}]}, lists, binaries, numbers, true, false,
%% null. The module couch_util is there as far as published functions use it.
%%
%% Each function is compiled to a module of its own. What the compiler refuses and the evaluator does not is evaluated.
%% Numbers: integers are exact at any length, what has a fraction or an exponent is a float.
%%
%% Nothing is isolated here: a function may do whatever the user may who runs this.
-mode(compile).

%% Functions that are kept compiled.
-define(CACHED, 200).
%% Answers are collected up to so many bytes, or so many milliseconds, while more commands wait.
-define(OUT_BYTES, 65536).
-define(OUT_MS, 20).
%% Strings longer than this are searched rather than walked through.
-define(LONG_STRING, 24).

main(_) ->
    put(port, open_port({fd, 0, 1}, [binary, stream, eof])),
    put(lines, []),
    put(partial, []),
    put(out, []),
    put(out_bytes, 0),
    put(out_since, now_ms()),
    put(quote, binary:compile_pattern(<<"\"">>)),
    put(backslash, binary:compile_pattern(<<"\\">>)),
    load_couch_util(),
    loop(#{funs => [], ddocs => #{}}).

loop(State) ->
    case next_line() of
        eof -> flush(), erlang:halt(0);
        Line -> loop(command(decode(Line), State))
    end.

%% Commands.

command([<<"reset">> | _], State) ->
    answer(true),
    State#{funs := []};
command([<<"add_lib">>, _], State) ->
    answer(true),
    State;
command([<<"add_fun">>, Source], #{funs := Funs} = State) ->
    try function(Source, nil) of
        Fun ->
            answer(true),
            State#{funs := Funs ++ [Fun]}
    catch
        throw:{compile, Reason} ->
            answer_error(<<"compilation_error">>, Reason),
            State
    end;
command([<<"map_doc">>, Doc], #{funs := Funs} = State) ->
    answer([map(Fun, Doc) || Fun <- Funs]),
    State;
command([<<"reduce">>, Sources, Rows], State) ->
    {Keys, Values} = lists:unzip([{Key, Value} || [Key, Value] <- Rows]),
    reduce(Sources, Keys, Values, false),
    State;
command([<<"rereduce">>, Sources, Values], State) ->
    reduce(Sources, null, Values, true),
    State;
command([<<"ddoc">>, <<"new">>, Id, DDoc], #{ddocs := DDocs} = State) ->
    answer(true),
    State#{ddocs := DDocs#{Id => DDoc}};
command([<<"ddoc">>, Id, Path, Args], #{ddocs := DDocs} = State) ->
    try
        DDoc =
            case DDocs of
                #{Id := Found} -> Found;
                _ -> throw({refused, <<"query_protocol_error">>, <<"uncached design doc: ", Id/binary>>})
            end,
        Fun = function(member(Path, DDoc, Id), DDoc),
        design(Path, Fun, Args)
    catch
        throw:{compile, Reason} -> answer_error(<<"compilation_error">>, Reason);
        throw:{refused, Name, Reason} -> answer_error(Name, Reason);
        Class:Reason:Stack -> answer_error(<<"native_query_server">>, describe(Class, Reason, Stack))
    end,
    State;
command(Other, State) ->
    answer_error(<<"unknown_command">>, describe(Other)),
    State.

map(Fun, Doc) ->
    put(rows, []),
    try Fun(Doc) of
        _ -> lists:reverse(put(rows, []))
    catch
        Class:Reason:Stack ->
            log(["function raised exception ", describe(Class, Reason, Stack), " with doc._id ", id(Doc)]),
            []
    end.

reduce(Sources, Keys, Values, ReReduce) ->
    try [(function(Source, nil))(Keys, Values, ReReduce) || Source <- Sources] of
        Results -> answer([true, Results])
    catch
        throw:{compile, Reason} -> answer_error(<<"compilation_error">>, Reason);
        Class:Reason:Stack -> answer_error(<<"reduce_runtime_error">>, describe(Class, Reason, Stack))
    end.

member([], Source, _) when is_binary(Source) -> Source;
member([Name | Path], {Members}, Id) ->
    case lists:keyfind(Name, 1, Members) of
        {_, Value} -> member(Path, Value, Id);
        false -> throw({refused, <<"not_found">>, <<"missing function ", Name/binary, " on design doc ", Id/binary>>})
    end;
member(_, _, Id) -> throw({refused, <<"malformed_ddoc">>, <<"a function is no string in ", Id/binary>>}).

design([<<"validate_doc_update">> | _], Fun, [NewDoc, OldDoc, Context | _] = Args) ->
    Verdict =
        try
            case is_function(Fun, 3) of
                true -> Fun(NewDoc, OldDoc, Context);
                false -> apply(Fun, Args)
            end
        catch
            throw:Thrown -> Thrown
        end,
    case Verdict of
        {forbidden, Reason} -> answer({[{forbidden, Reason}]});
        {unauthorized, Reason} -> answer({[{unauthorized, Reason}]});
        ok -> answer(1);
        Other -> answer(Other)
    end;
design([<<"filters">> | _], Fun, [Docs, Request]) ->
    answer([true, [passes(fun() -> Fun(Doc, Request) =:= true end, Doc) || Doc <- Docs]]);
design([<<"views">> | _], Fun, [Docs]) ->
    Emits = fun(Doc) ->
        put(rows, []),
        Fun(Doc),
        put(rows, []) =/= []
    end,
    answer([true, [passes(fun() -> Emits(Doc) end, Doc) || Doc <- Docs]]);
design([<<"shows">> | _], Fun, Args) ->
    case apply_catching(Fun, Args) of
        {Response} -> answer([<<"resp">>, {Response}]);
        Body when is_binary(Body) -> answer([<<"resp">>, {[{<<"body">>, Body}]}]);
        Other -> answer(Other)
    end;
design([<<"updates">> | _], Fun, Args) ->
    case apply_catching(Fun, Args) of
        [Doc, Response] when is_binary(Response) -> answer([<<"up">>, Doc, {[{<<"body">>, Response}]}]);
        [Doc, Response] -> answer([<<"up">>, Doc, Response]);
        Other -> answer(Other)
    end;
design([<<"rewrites">> | _], Fun, Args) ->
    case apply_catching(Fun, Args) of
        {Rewrite} -> answer([<<"ok">>, {Rewrite}]);
        Nothing when Nothing =:= undefined; Nothing =:= null; Nothing =:= false -> answer([<<"no_dispatch_rule">>]);
        Other -> answer(Other)
    end;
design([<<"lists">> | _], Fun, Args) ->
    list(Fun, Args);
design(_, _, _) ->
    throw({refused, <<"unknown_command">>, <<"unknown ddoc command">>}).

%% What is thrown is an answer as well, as in CouchDB.
apply_catching(Fun, Args) ->
    try
        apply(Fun, Args)
    catch
        throw:Thrown -> Thrown
    end.

passes(Test, Doc) ->
    try
        Test()
    catch
        Class:Reason:Stack ->
            log(["filter raised exception ", describe(Class, Reason, Stack), " with doc._id ", id(Doc)]),
            false
    end.

%% List functions. GetRow answers the command before, and waits for the next one.

list(Fun, Args) ->
    put(list, starting),
    put(headers, {[{<<"headers">>, {[]}}]}),
    put(chunks, []),
    try apply_catching(Fun, Args) of
        Last ->
            put(chunks, [Last || is_binary(Last) orelse is_list(Last)] ++ get(chunks)),
            case get(list) of
                starting ->
                    answer([<<"start">>, [], get(headers)]),
                    next_line();
                _ ->
                    ok
            end,
            answer([<<"end">>, take_chunks()])
    after
        erase(list)
    end.

get_row() ->
    case get(list) of
        starting -> answer([<<"start">>, take_chunks(), get(headers)]), receive_row();
        rows -> answer([<<"chunks">>, take_chunks()]), receive_row();
        ended -> nil
    end.

receive_row() ->
    case decode(next_line()) of
        [<<"list_row">>, Row] -> put(list, rows), Row;
        [<<"list_end">>] -> put(list, ended), nil;
        Other -> throw({refused, <<"list_error">>, <<"not a row ", (describe(Other))/binary>>})
    end.

take_chunks() -> [chunk(Chunk) || Chunk <- lists:reverse(put(chunks, []))].

chunk(Chunk) when is_binary(Chunk) -> Chunk;
chunk(Chunk) ->
    try
        iolist_to_binary(Chunk)
    catch
        error:badarg -> throw({refused, <<"list_error">>, <<"a chunk is no text">>})
    end.

fold_rows(Fun, Acc) ->
    case get_row() of
        nil -> {ok, Acc};
        Row ->
            case Fun(Row, Acc) of
                {ok, Next} -> fold_rows(Fun, Next);
                {stop, Last} -> {ok, Last}
            end
    end.

%% Functions.

names() -> ['Emit', 'Log', 'Start', 'Send', 'GetRow', 'FoldRows', 'DDoc'].

bound(DDoc) ->
    [
        fun(Key, Value) -> put(rows, [[Key, Value] | get(rows)]), ok end,
        fun(Message) -> log(Message), ok end,
        fun(Response) -> put(headers, Response), ok end,
        fun(Chunk) -> put(chunks, [Chunk | get(chunks)]), ok end,
        fun get_row/0,
        fun fold_rows/2,
        DDoc
    ].

%% The fun that a source stands for.
function(Source, DDoc) ->
    Make =
        case get({made, Source}) of
            undefined -> remember(Source, make(Source));
            Made -> Made
        end,
    case catch Make(bound(DDoc)) of
        Fun when is_function(Fun) -> Fun;
        {'EXIT', {Reason, _}} -> throw({compile, <<(describe(Reason))/binary, " (", Source/binary, ")">>});
        _ -> throw({compile, <<"Expression does not eval to a function. (", Source/binary, ")">>})
    end.

remember(Source, Make) ->
    Known =
        case get(made) of
            undefined -> [];
            Sources -> Sources
        end,
    case length(Known) >= ?CACHED of
        true ->
            [erase({made, Old}) || Old <- Known],
            put(made, [Source]);
        false ->
            put(made, [Source | Known])
    end,
    put({made, Source}, Make),
    Make.

make(Source) ->
    Refuse = fun(Line, Module, Why) ->
        Text = unicode:characters_to_binary(io_lib:format("line ~p: ~ts", [Line, Module:format_error(Why)])),
        throw({compile, <<Text/binary, " (", Source/binary, ")">>})
    end,
    %% Byte by byte: a character beyond ASCII in a binary is then its UTF-8, as in CouchDB.
    Tokens =
        case erl_scan:string(binary_to_list(Source)) of
            {ok, Scanned, _} -> Scanned;
            {error, {Line, Module, Why}, _} -> Refuse(Line, Module, Why)
        end,
    Dotted =
        case lists:reverse(Tokens) of
            [{dot, _} | _] -> Tokens;
            _ -> Tokens ++ [{dot, 1}]
        end,
    case erl_parse:parse_exprs(Dotted) of
        {ok, [Form]} -> compiled(Form);
        {ok, _} -> throw({compile, <<"Expression does not eval to a function. (", Source/binary, ")">>});
        {error, {Line1, Module1, Why1}} -> Refuse(Line1, Module1, Why1)
    end.

compiled(Form) ->
    Module = module_name(),
    Line = erl_anno:new(1),
    Patterns = [{var, Line, Name} || Name <- names()],
    List = lists:foldr(fun(Pattern, Rest) -> {cons, Line, Pattern, Rest} end, {nil, Line}, Patterns),
    Forms = [
        {attribute, Line, module, Module},
        {attribute, Line, export, [{make, 1}]},
        {function, Line, make, 1, [{clause, Line, [List], [], [Form]}]}
    ],
    case catch compile:forms(Forms, [binary, return]) of
        {ok, Module, Binary, _} ->
            code:purge(Module),
            {module, Module} = code:load_binary(Module, "", Binary),
            fun Module:make/1;
        _ ->
            fun(Bound) ->
                {value, Fun, _} = erl_eval:expr(Form, maps:from_list(lists:zip(names(), Bound))),
                Fun
            end
    end.

%% Names come round again: atoms are never freed. A function that is still in use is then gone from the cache already.
module_name() ->
    Number =
        case get(module) of
            undefined -> 0;
            Last -> (Last + 1) rem (2 * ?CACHED)
        end,
    put(module, Number),
    list_to_atom("settee_function_" ++ integer_to_list(Number)).

load_couch_util() ->
    Source =
        "-module(couch_util). "
        "-export([get_value/2, get_value/3, get_nested_json_value/2, to_binary/1, to_list/1, to_integer/1, "
        "  to_existing_atom/1, implode/2, trim/1]). "
        "get_value(Key, List) -> get_value(Key, List, undefined). "
        "get_value(Key, List, Default) ->"
        "  case lists:keyfind(Key, 1, List) of {_, Value} -> Value; false -> Default end. "
        "get_nested_json_value({Members}, [Key | Keys]) ->"
        "  case get_value(Key, Members, nil) of"
        "    nil -> throw({not_found, <<\"missing json key: \", Key/binary>>});"
        "    Value -> get_nested_json_value(Value, Keys) end;"
        "get_nested_json_value(Value, []) -> Value;"
        "get_nested_json_value(_, _) -> throw({not_found, json_mismatch}). "
        "to_binary(V) when is_binary(V) -> V;"
        "to_binary(V) when is_list(V) -> try list_to_binary(V) catch _:_ -> list_to_binary(io_lib:format(\"~p\", [V])) end;"
        "to_binary(V) when is_atom(V) -> atom_to_binary(V, utf8);"
        "to_binary(V) -> list_to_binary(io_lib:format(\"~p\", [V])). "
        "to_list(V) when is_list(V) -> V;"
        "to_list(V) when is_binary(V) -> binary_to_list(V);"
        "to_list(V) when is_atom(V) -> atom_to_list(V);"
        "to_list(V) -> lists:flatten(io_lib:format(\"~p\", [V])). "
        "to_integer(V) when is_integer(V) -> V;"
        "to_integer(V) when is_list(V) -> list_to_integer(V);"
        "to_integer(V) when is_binary(V) -> binary_to_integer(V). "
        "to_existing_atom(V) when is_atom(V) -> V;"
        "to_existing_atom(V) when is_list(V) -> try list_to_existing_atom(V) catch _:_ -> V end;"
        "to_existing_atom(V) -> to_existing_atom(binary_to_list(V)). "
        "implode(List, Sep) -> lists:flatten(lists:join(Sep, List)). "
        "trim(String) -> string:trim(String).",
    {ok, Tokens, _} = erl_scan:string(Source),
    {ok, Module, Binary} = compile:forms(parse_forms(Tokens), [binary]),
    {module, Module} = code:load_binary(Module, "", Binary).

parse_forms([]) -> [];
parse_forms(Tokens) ->
    {Form, [Dot | Rest]} = lists:splitwith(fun(Token) -> element(1, Token) =/= dot end, Tokens),
    {ok, Parsed} = erl_parse:parse_form(Form ++ [Dot]),
    [Parsed | parse_forms(Rest)].

%% Texts for people.

describe(Class, Reason, [{Module, Name, _, _} | _]) when is_atom(Name) ->
    case atom_to_list(Module) of
        "settee_function_" ++ _ -> describe({Class, Reason});
        _ -> describe({Class, Reason, {Module, Name}})
    end;
describe(Class, Reason, _) -> describe({Class, Reason}).

describe(Term) -> unicode:characters_to_binary(io_lib:format("~0tP", [Term, 40])).

id({Members}) ->
    case lists:keyfind(<<"_id">>, 1, Members) of
        {_, Id} when is_binary(Id) -> Id;
        _ -> <<"?">>
    end;
id(_) -> <<"?">>.

log(Message) ->
    Text =
        try unicode:characters_to_binary(Message) of
            Binary when is_binary(Binary) -> Binary;
            _ -> describe(Message)
        catch
            _:_ -> describe(Message)
        end,
    answer([<<"log">>, Text]).

%% Lines in and out. Answers are kept while there are further commands, unless that takes long.

answer_error(Name, Reason) -> answer([<<"error">>, Name, Reason]).

answer(Term) ->
    Text =
        try
            iolist_to_binary([encode(Term), $\n])
        catch
            throw:{no_json, Bad} ->
                iolist_to_binary([encode([<<"error">>, <<"invalid_value">>, <<"no JSON value: ", (describe(Bad))/binary>>]), $\n])
        end,
    put(out, [Text | get(out)]),
    Bytes = get(out_bytes) + byte_size(Text),
    put(out_bytes, Bytes),
    case Bytes >= ?OUT_BYTES orelse now_ms() - get(out_since) >= ?OUT_MS of
        true -> flush();
        false -> ok
    end.

flush() ->
    case get(out) of
        [] -> ok;
        Out ->
            port_command(get(port), lists:reverse(Out)),
            put(out, []),
            put(out_bytes, 0)
    end,
    put(out_since, now_ms()).

now_ms() -> erlang:monotonic_time(millisecond).

next_line() ->
    case get(lines) of
        [Line | Rest] -> put(lines, Rest), Line;
        [] -> flush(), read()
    end.

read() ->
    Port = get(port),
    receive
        {Port, {data, Data}} ->
            case binary:split(Data, <<"\n">>, [global]) of
                [Part] ->
                    put(partial, [Part | get(partial)]),
                    read();
                [First | Rest] ->
                    {Lines, Last} = lists:split(length(Rest) - 1, Rest),
                    Line = iolist_to_binary(lists:reverse([First | get(partial)])),
                    put(partial, Last),
                    put(lines, Lines),
                    put(out_since, now_ms()),
                    Line
            end;
        {Port, eof} ->
            eof
    end.

%% JSON in. The text was checked before it was sent.

decode(Text) -> value(Text, Text, 0, []).

value(<<C, Rest/binary>>, Text, At, Stack) when C =:= $\s; C =:= $\t; C =:= $\r -> value(Rest, Text, At + 1, Stack);
value(<<$", Rest/binary>>, Text, At, Stack) -> string(Rest, Text, At + 1, 0, Stack);
value(<<${, Rest/binary>>, Text, At, Stack) -> first_name(Rest, Text, At + 1, Stack);
value(<<$[, Rest/binary>>, Text, At, Stack) -> first_element(Rest, Text, At + 1, Stack);
value(<<"true", Rest/binary>>, Text, At, Stack) -> next(Rest, Text, At + 4, Stack, true);
value(<<"false", Rest/binary>>, Text, At, Stack) -> next(Rest, Text, At + 5, Stack, false);
value(<<"null", Rest/binary>>, Text, At, Stack) -> next(Rest, Text, At + 4, Stack, null);
value(Rest, Text, At, Stack) -> integer(Rest, Text, At, 0, Stack).

first_element(<<$], Rest/binary>>, Text, At, Stack) -> next(Rest, Text, At + 1, Stack, []);
first_element(Rest, Text, At, Stack) -> value(Rest, Text, At, [{list, []} | Stack]).

first_name(<<$}, Rest/binary>>, Text, At, Stack) -> next(Rest, Text, At + 1, Stack, {[]});
first_name(<<$", Rest/binary>>, Text, At, Stack) -> string(Rest, Text, At + 1, 0, [{name, []} | Stack]).

%% What follows a value depends on what it is part of.
next(<<C, Rest/binary>>, Text, At, [_ | _] = Stack, Value) when C =:= $\s; C =:= $\t ->
    next(Rest, Text, At + 1, Stack, Value);
next(<<$:, Rest/binary>>, Text, At, [{name, Members} | Stack], Name) ->
    value(Rest, Text, At + 1, [{member, Name, Members} | Stack]);
next(<<$,, Rest/binary>>, Text, At, [{member, Name, Members} | Stack], Value) ->
    name(Rest, Text, At + 1, [{name, [{Name, Value} | Members]} | Stack]);
next(<<$}, Rest/binary>>, Text, At, [{member, Name, Members} | Stack], Value) ->
    next(Rest, Text, At + 1, Stack, {lists:reverse(Members, [{Name, Value}])});
next(<<$,, Rest/binary>>, Text, At, [{list, Elements} | Stack], Value) ->
    value(Rest, Text, At + 1, [{list, [Value | Elements]} | Stack]);
next(<<$], Rest/binary>>, Text, At, [{list, Elements} | Stack], Value) ->
    next(Rest, Text, At + 1, Stack, lists:reverse(Elements, [Value]));
next(_, _, _, [], Value) ->
    Value.

name(<<$", Rest/binary>>, Text, At, Stack) -> string(Rest, Text, At + 1, 0, Stack);
name(<<_, Rest/binary>>, Text, At, Stack) -> name(Rest, Text, At + 1, Stack).

%% Strings without escapes are parts of the line; long ones are searched for their end.
string(<<$", Rest/binary>>, Text, At, Length, Stack) ->
    next(Rest, Text, At + Length + 1, Stack, binary_part(Text, At, Length));
string(<<$\\, _/binary>>, Text, At, Length, Stack) ->
    escaped(Text, At, Length, Stack);
string(Rest, Text, At, ?LONG_STRING, Stack) ->
    _ = Rest,
    From = At + ?LONG_STRING,
    {Quote, 1} = binary:match(Text, get(quote), [{scope, {From, byte_size(Text) - From}}]),
    case binary:match(Text, get(backslash), [{scope, {From, Quote - From}}]) of
        nomatch ->
            Skip = Quote + 1,
            <<_:Skip/binary, After/binary>> = Text,
            next(After, Text, Skip, Stack, binary_part(Text, At, Quote - At));
        {Escape, 1} ->
            escaped(Text, At, Escape - At, Stack)
    end;
string(<<_, Rest/binary>>, Text, At, Length, Stack) ->
    string(Rest, Text, At, Length + 1, Stack).

%% A string with an escape at `Length`.
escaped(Text, At, Length, Stack) ->
    Skip = At + Length,
    <<_:Skip/binary, Rest/binary>> = Text,
    unescape(Rest, Text, Skip, [binary_part(Text, At, Length)], Stack).

unescape(<<$", Rest/binary>>, Text, At, Parts, Stack) ->
    next(Rest, Text, At + 1, Stack, iolist_to_binary(lists:reverse(Parts)));
unescape(<<"\\u", Hex:4/binary, Rest/binary>>, Text, At, Parts, Stack) ->
    case {binary_to_integer(Hex, 16), Rest} of
        {High, <<"\\u", Low:4/binary, Rest1/binary>>} when High >= 16#D800, High < 16#DC00 ->
            Code = 16#10000 + ((High - 16#D800) bsl 10) + (binary_to_integer(Low, 16) - 16#DC00),
            unescape(Rest1, Text, At + 12, [<<Code/utf8>> | Parts], Stack);
        {Code, _} ->
            unescape(Rest, Text, At + 6, [<<Code/utf8>> | Parts], Stack)
    end;
unescape(<<$\\, C, Rest/binary>>, Text, At, Parts, Stack) ->
    Plain =
        case C of
            $n -> $\n;
            $t -> $\t;
            $r -> $\r;
            $b -> $\b;
            $f -> $\f;
            _ -> C
        end,
    unescape(Rest, Text, At + 2, [Plain | Parts], Stack);
unescape(Rest, Text, At, Parts, Stack) ->
    Length = plain(Rest, 0),
    <<Part:Length/binary, Rest1/binary>> = Rest,
    unescape(Rest1, Text, At + Length, [Part | Parts], Stack).

plain(<<C, Rest/binary>>, Length) when C =/= $", C =/= $\\ -> plain(Rest, Length + 1);
plain(_, Length) -> Length.

integer(<<C, Rest/binary>>, Text, At, Length, Stack) when C >= $0, C =< $9; C =:= $- ->
    integer(Rest, Text, At, Length + 1, Stack);
integer(<<C, _/binary>> = Rest, Text, At, Length, Stack) when C =:= $.; C =:= $e; C =:= $E ->
    float(Rest, Text, At, Length, Stack);
integer(Rest, Text, At, Length, Stack) ->
    next(Rest, Text, At + Length, Stack, binary_to_integer(binary_part(Text, At, Length))).

float(<<C, Rest/binary>>, Text, At, Length, Stack) when
    C >= $0, C =< $9; C =:= $.; C =:= $e; C =:= $E; C =:= $-; C =:= $+
->
    float(Rest, Text, At, Length + 1, Stack);
float(Rest, Text, At, Length, Stack) ->
    next(Rest, Text, At + Length, Stack, to_float(binary_part(Text, At, Length))).

%% Erlang wants a fraction before an exponent.
to_float(Number) ->
    case binary:match(Number, <<".">>) of
        nomatch ->
            [Mantissa, Exponent] = binary:split(Number, [<<"e">>, <<"E">>]),
            binary_to_float(<<Mantissa/binary, ".0e", Exponent/binary>>);
        _ ->
            binary_to_float(Number)
    end.

%% JSON out.

encode(true) -> <<"true">>;
encode(false) -> <<"false">>;
encode(null) -> <<"null">>;
encode(Value) when is_binary(Value) -> encode_string(Value);
encode(Value) when is_integer(Value) -> integer_to_binary(Value);
encode([]) -> <<"[]">>;
encode([First | Rest]) -> [$[, encode(First) | encode_elements(Rest)];
encode({[]}) -> <<"{}">>;
encode({[First | Rest]}) -> [${, encode_member(First) | encode_members(Rest)];
encode(Value) when is_float(Value) -> encode_float(Value);
encode(Value) when is_atom(Value) -> encode_string(atom_to_binary(Value, utf8));
encode(Value) when is_map(Value) -> encode({maps:to_list(Value)});
encode(Value) -> throw({no_json, Value}).

encode_elements([]) -> [$]];
encode_elements([Element | Rest]) -> [$,, encode(Element) | encode_elements(Rest)];
encode_elements(Improper) -> throw({no_json, Improper}).

encode_members([]) -> [$}];
encode_members([Member | Rest]) -> [$,, encode_member(Member) | encode_members(Rest)];
encode_members(Improper) -> throw({no_json, Improper}).

encode_member({Name, Value}) when is_binary(Name) -> [encode_string(Name), $:, encode(Value)];
encode_member({Name, Value}) when is_atom(Name) -> [encode_string(atom_to_binary(Name, utf8)), $:, encode(Value)];
encode_member({Name, Value}) when is_list(Name) -> [encode_string(list_to_binary(Name)), $:, encode(Value)];
encode_member(Other) -> throw({no_json, Other}).

encode_string(Text) ->
    case is_plain(Text) of
        true -> [$", Text, $"];
        false -> [$", escape(Text, <<>>), $"]
    end.

is_plain(<<C, Rest/binary>>) when C >= 32, C < 127, C =/= $", C =/= $\\ -> is_plain(Rest);
is_plain(<<>>) -> true;
is_plain(_) -> false.

escape(<<C, Rest/binary>>, Out) when C >= 32, C < 127, C =/= $", C =/= $\\ -> escape(Rest, <<Out/binary, C>>);
escape(<<$", Rest/binary>>, Out) -> escape(Rest, <<Out/binary, "\\\"">>);
escape(<<$\\, Rest/binary>>, Out) -> escape(Rest, <<Out/binary, "\\\\">>);
escape(<<$\n, Rest/binary>>, Out) -> escape(Rest, <<Out/binary, "\\n">>);
escape(<<$\r, Rest/binary>>, Out) -> escape(Rest, <<Out/binary, "\\r">>);
escape(<<$\t, Rest/binary>>, Out) -> escape(Rest, <<Out/binary, "\\t">>);
escape(<<$\b, Rest/binary>>, Out) -> escape(Rest, <<Out/binary, "\\b">>);
escape(<<$\f, Rest/binary>>, Out) -> escape(Rest, <<Out/binary, "\\f">>);
escape(<<C, Rest/binary>>, Out) when C < 32 ->
    escape(Rest, <<Out/binary, (iolist_to_binary(io_lib:format("\\u~4.16.0b", [C])))/binary>>);
escape(<<C/utf8, Rest/binary>>, Out) -> escape(Rest, <<Out/binary, C/utf8>>);
escape(<<>>, Out) -> Out;
escape(Text, _) -> throw({no_json, Text}).

%% As CouchDB writes them: the shortest digits that read back the same, with an exponent from 1e21 and below 1e-6 only.
encode_float(Value) ->
    Short = float_to_binary(Value, [short]),
    case binary:split(Short, <<"e">>) of
        [_] -> Short;
        [Mantissa, Exponent] -> with_exponent(Mantissa, binary_to_integer(Exponent))
    end.

with_exponent(<<$-, Mantissa/binary>>, Exponent) -> [$-, with_exponent(Mantissa, Exponent)];
with_exponent(Mantissa, Exponent) when Exponent >= 21; Exponent < -6 ->
    Sign = case Exponent > 0 of true -> "+"; false -> "" end,
    Digits = case binary:split(Mantissa, <<".">>) of [Whole, <<"0">>] -> Whole; _ -> Mantissa end,
    [Digits, $e, Sign, integer_to_binary(Exponent)];
with_exponent(Mantissa, Exponent) when Exponent < 0 ->
    ["0.", lists:duplicate(-Exponent - 1, $0), digits(Mantissa)];
with_exponent(Mantissa, Exponent) ->
    Digits = digits(Mantissa),
    Missing = Exponent + 1 - byte_size(Digits),
    case Missing >= 0 of
        true -> [Digits, lists:duplicate(Missing, $0), ".0"];
        false -> [binary_part(Digits, 0, Exponent + 1), $., binary_part(Digits, Exponent + 1, -Missing)]
    end.

%% All digits of a mantissa, without its point and without zeros at the end.
digits(Mantissa) ->
    [Whole, Fraction] = binary:split(Mantissa, <<".">>),
    case Fraction of
        <<"0">> -> Whole;
        _ -> <<Whole/binary, Fraction/binary>>
    end.
